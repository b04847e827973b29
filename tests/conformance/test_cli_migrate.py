"""`barnabas migrate check` of a running cluster, on Barnabas and on Apache Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.migrate.commands import migrate
from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.cluster_process import ClusterProcess
from conformance.client_brokers import KafkaProcess, broker
from waiting import eventually

pytestmark = pytest.mark.conformance
__all__ = ["broker"]


def test_a_running_cluster_says_what_moves(broker: BrokerProcess | KafkaProcess) -> None:
    done = CliRunner().invoke(migrate, ["check", "--bootstrap", broker.bootstrap, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["can_move"]
    moves = [each["what"] for each in found["findings"] if each["verdict"] == "moves"]
    assert any("metadata.version" in what for what in moves)
    assert any("keys with the same meaning" in what for what in moves)
    assert any("in sync" in what for what in moves)
    assert any("1 voter of the metadata quorum" in what for what in moves)
    others = [each["what"] for each in found["findings"] if each["verdict"] == "but"]
    assert any("data directories" in what for what in others)


def test_a_voter_that_is_down_stops_the_move(tmp_path: Path) -> None:
    with ClusterProcess(1, 3, tmp_path) as cluster:
        args = ["check", "--bootstrap", cluster.bootstrap, "--json"]
        # A controller may be ready before its first fetch from the leader.
        eventually(lambda: CliRunner().invoke(migrate, args).exit_code == 0)
        with Client(cluster.bootstrap) as client:
            leader = client.admin.describe_quorum().leader_id
        victim = next(each for each in cluster.controllers if each.node_id != leader)
        victim.kill()

        def is_reported() -> bool:
            done = CliRunner().invoke(migrate, args)
            return done.exit_code == 1 and f"controllers {victim.node_id} do not" in done.output

        eventually(is_reported, "the check does not report the stopped voter")
        victim.start()
        eventually(lambda: CliRunner().invoke(migrate, args).exit_code == 0)
