"""Loss of the metadata quorum, with killed and stopped processes."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING

import pytest

from barnabas.testing.cluster_process import ClusterProcess
from barnabas.testing.free_ports import HOST, free_ports
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body of a response of the metrics listener."""
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    found = response.status, response.read().decode()
    connection.close()
    return found


@pytest.mark.parametrize("manner", ["kill", "pause"])
def test_the_remaining_node_names_the_silent_voters(tmp_path: Path, manner: str) -> None:
    settings = {"barnabas.log.level": "info"}
    cluster = ClusterProcess(1, 3, tmp_path, settings)
    (port,) = free_ports(1)
    survivor, *others = cluster.controllers
    survivor.settings["metrics.listener"] = f"{HOST}:{port}"
    with cluster:
        eventually(lambda: get(port, "/readyz")[0] == 200)
        eventually(lambda: "kafka_server_raft_metrics_current_leader -1" not in
                   get(port, "/metrics")[1])  # fmt: skip
        for node in others:
            node.kill() if manner == "kill" else node.pause()
        _, reason = eventually(lambda: found if (found := get(port, "/readyz"))[0] == 503 else None)
        for node in others:
            assert f"{node.node_id} at {node.address}" in reason
        assert "the metadata quorum is lost" in reason
        assert get(port, "/healthz")[0] == 200
        metrics = get(port, "/metrics")[1]
        assert "kafka_server_raft_metrics_current_leader -1" in metrics
        assert "barnabas_quorum_silent_voters 2" in metrics
        assert survivor.log().count("The metadata quorum is lost") == 1
        for node in others:
            node.start() if manner == "kill" else node.resume()
        eventually(lambda: get(port, "/readyz")[0] == 200)
        eventually(lambda: "The metadata quorum is back" in survivor.log())
        assert survivor.log().count("The metadata quorum is lost") == 1
