"""Settings of a cluster of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.settings.properties import parse_properties
from barnabas.testing.cluster_process import ClusterProcess
from barnabas.testing.free_ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path


def keys_of(cluster: ClusterProcess, number: int) -> dict[str, str]:
    node = cluster.node(number)
    node.directory.mkdir(parents=True)
    node.prepare()
    return parse_properties(node.properties_file.read_text())


def test_brokers_are_controllers_unless_separate_controllers_exist(tmp_path: Path) -> None:
    cluster = ClusterProcess(3, directory=tmp_path)
    keys = keys_of(cluster, 2)
    assert keys["process.roles"] == "broker,controller"
    assert keys["node.id"] == "2"
    voters = dict(each.split("@") for each in keys["controller.quorum.voters"].split(","))
    assert list(voters) == ["1", "2", "3"]
    client, controller = keys["listeners"].split(",")
    assert controller == f"CONTROLLER://{voters['2']}"
    assert client == f"PLAINTEXT://{cluster.node(2).address}"
    assert cluster.bootstrap.split(",")[1] == cluster.node(2).address
    assert repr(cluster) == f"ClusterProcess({cluster.bootstrap!r})"
    assert repr(cluster.node(2)) == f"NodeProcess({cluster.node(2).address!r})"
    assert keys["controller.listener.names"] == "CONTROLLER"
    assert keys["inter.broker.listener.name"] == "PLAINTEXT"


def test_separate_controllers_are_the_only_voters(tmp_path: Path) -> None:
    cluster = ClusterProcess(2, 1, tmp_path)
    assert [node.node_id for node in cluster.brokers] == [1, 2]
    assert [node.node_id for node in cluster.controllers] == [101]
    controller, broker = keys_of(cluster, 101), keys_of(cluster, 1)
    assert controller["process.roles"] == "controller"
    assert broker["process.roles"] == "broker"
    assert controller["controller.quorum.voters"] == f"101@{cluster.node(101).address}"
    assert broker["controller.quorum.voters"] == controller["controller.quorum.voters"]
    assert controller["listeners"] == f"CONTROLLER://{cluster.node(101).address}"
    assert "CONTROLLER://" not in broker["listeners"]
    assert "inter.broker.listener.name" not in controller


def test_internal_topics_have_as_many_replicas_as_there_are_brokers(tmp_path: Path) -> None:
    key = "offsets.topic.replication.factor"
    assert keys_of(ClusterProcess(2, directory=tmp_path / "2"), 1)[key] == "2"
    assert key not in keys_of(ClusterProcess(3, directory=tmp_path / "3"), 1)


def test_common_settings_apply_to_all_nodes_and_node_settings_after_its_restart(
    tmp_path: Path,
) -> None:
    cluster = ClusterProcess(2, directory=tmp_path, settings={"num.partitions": "7"})
    cluster.node(2).settings["broker.rack"] = "east"
    assert keys_of(cluster, 1)["num.partitions"] == "7"
    assert keys_of(cluster, 2)["num.partitions"] == "7"
    assert keys_of(ClusterProcess(2, directory=tmp_path / "x"), 2).get("broker.rack") is None
    cluster.node(2).prepare()
    assert "broker.rack=east" in cluster.node(2).properties_file.read_text()


class OneMore:
    """A network whose relays listen on the port after."""

    relays_clients = False

    def relayed(self, node_id: int, listener: str, address: tuple[str, int]) -> tuple[str, int]:
        return address[0], address[1] + 1


def test_with_a_network_nodes_connect_through_relays_and_clients_directly(
    tmp_path: Path,
) -> None:
    cluster = ClusterProcess(2, 1, tmp_path, network=OneMore())
    keys = keys_of(cluster, 1)
    told = keys["advertised.listeners"].split(",")
    bound = keys["listeners"].split(",")
    assert [each.split(":")[0] for each in bound] == ["PLAINTEXT", "REPLICATION"]
    assert told[0] == bound[0]
    assert int(told[1].split(":")[2]) == int(bound[1].split(":")[2]) + 1
    assert keys["inter.broker.listener.name"] == "REPLICATION"
    controller = keys_of(cluster, 101)
    port = int(controller["listeners"].split(":")[2]) + 1
    assert keys["controller.quorum.voters"] == f"101@127.0.0.1:{port}"
    assert controller["advertised.listeners"] == f"CONTROLLER://127.0.0.1:{port}"


def test_free_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    ports = free_ports(100) + free_ports(100)
    assert len(set(ports)) == 200
    assert max(ports) < 32_768


def test_processes_of_one_test_run_use_different_ports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    first = free_ports(100)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    assert max(first) < min(free_ports(100))
