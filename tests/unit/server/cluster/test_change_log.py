"""Log lines at level info about changes of a cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from barnabas.protocol.schema import ZERO_UUID
from unit.server.simulated_broker import SimulatedBroker
from unit.server.simulated_cluster import three_nodes

if TYPE_CHECKING:
    from unit.server.simulated_cluster import SimulatedCluster


def lines_of(caplog: pytest.LogCaptureFixture, module: str = "barnabas") -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.startswith(module)]


def make(cluster: SimulatedCluster, node_id: int, name: str, partitions: int) -> None:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=3, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    assert cluster.ask(node_id, request, 7).topics[0].error_code == 0


def test_a_cluster_logs_elections_brokers_leaders_and_isrs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    cluster = three_nodes()
    active = cluster.active
    make(cluster, active, "t", 8)
    dead, other = (node_id for node_id in (1, 2, 3) if node_id != active)
    lines = lines_of(caplog)
    assert "Topics created: t" in lines
    assert f"Node ready: id={active} address=node-{active}:9092" in lines
    assert any(
        line.startswith("Quorum role changed: epoch=1 role=leader elected_by=") for line in lines
    )
    assert lines.count(f"Quorum role changed: epoch=1 role=follower leader={active}") == 2
    caplog.clear()
    cluster.kill(dead)
    cluster.until(lambda: dead not in cluster.live_brokers(other))
    cluster.world.run_for(500)
    lines = lines_of(caplog)
    assert f"Broker {dead} is fenced" in lines
    assert any(line.startswith(f"Leader {dead} -> {active}: t-") for line in lines)
    (left,) = {line for line in lines if line.startswith(f"Broker {dead} left the ISR of t-0, ")}
    assert left.endswith(" and 3 more")
    caplog.clear()
    cluster.launch(dead)
    cluster.until(lambda: cluster.ready == {1, 2, 3})
    cluster.world.run_for(3_000)
    lines = lines_of(caplog)
    assert f"Broker {dead} is unfenced" in lines
    assert any(line.startswith(f"Broker {dead} joined the ISR of t-") for line in lines)
    assert any(line.startswith(f"Broker {dead} has registered, epoch ") for line in lines)


def test_a_single_broker_logs_its_start_its_topics_and_its_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    broker = SimulatedBroker()
    broker.make_topic("a")
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="a", topic_id=ZERO_UUID)], timeout_ms=10_000
    )
    assert broker.ask(request, 6).responses[0].error_code == 0
    broker.stop()
    lines = lines_of(caplog)
    cluster_id = broker.node.shared.cluster_id
    assert lines[0] == f"Node starting: id=1 cluster={cluster_id} roles=broker,controller"
    assert [line for line in lines if line.startswith("Topics")] == [
        "Topics created: a",
        "Topics deleted: a",
    ]
    assert lines[-1] == "Node stopped: id=1"


def test_segments_are_logged_at_debug_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    broker = SimulatedBroker()
    broker.make_topic("t", segment_bytes="1048576", retention_bytes="1")
    for _ in range(5):
        assert broker.produce("t", bytes(500_000)).error_code == 0
    broker.world.run_for(600_000)
    lines = lines_of(caplog, "barnabas.storage.log.roll_and_retention")
    assert "Rolled to a new segment: directory=/data/t-0 base_offset=2" in lines
    assert any(line.startswith("Deleted segments:") for line in lines)
    caplog.clear()
    caplog.set_level(logging.INFO)
    broker.produce("t", bytes(1_000_000))
    assert not lines_of(caplog, "barnabas.storage.log.roll_and_retention")


def test_changes_from_before_the_start_are_not_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = SimulatedBroker()
    broker.make_topic("a")
    broker.stop()
    caplog.set_level(logging.INFO)
    broker.restart()
    assert not [line for line in lines_of(caplog) if line.startswith("Topics")]
