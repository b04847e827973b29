"""A closed connection cancels its pending requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.configs_image import TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.record.builder import BatchBuilder
from barnabas.replication.partition.partition import Partition
from barnabas.server.controller_access import forwarding
from barnabas.server.quotas.config import INT_MAX
from barnabas.storage.topic_partition import TopicPartition
from unit.server.handlers.fetch_requests import replicated
from unit.server.process.drain import long_fetch
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient, produce_request
from unit.server.simulated_cluster import CLIENT_PORT, SimulatedCluster, three_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.fetch import FetchRequest
    from barnabas.protocol.messages.produce import ProduceRequest
    from barnabas.protocol.schema import Message


INSPECTED_RECORDS = 20_000


def compact(cluster: SimulatedCluster) -> None:
    """Compact the topic "t", so that the keys of appended records are inspected."""
    config = AlterableConfig(name="cleanup.policy", config_operation=0, value="compact")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    assert cluster.ask(1, request, 1).responses[0].error_code == ErrorCode.NONE


def endless_fetch(topic: str) -> FetchRequest:
    request = long_fetch(topic)
    request.max_wait_ms = INT_MAX
    return request


@pytest.mark.parametrize("count", [1, 300], ids=["while it is read", "while reading is paused"])
def test_a_delayed_fetch_ends_with_its_connection(count: int) -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    replicas = broker.node.broker.replicas
    client = SimulatedClient(broker.world, "other")
    for _ in range(count):
        client.send(endless_fetch("t"), 12)
    assert broker.world.run_until(lambda: replicas.waiting()["Fetch"] == 1)
    client.channel.close()
    assert broker.world.run_until(lambda: replicas.waiting()["Fetch"] == 0)
    assert broker.node.shared.wheel.waiting_count < 128
    assert broker.produce("t", b"value").error_code == 0


def endless_append() -> ProduceRequest:
    builder = BatchBuilder()
    builder.append(0, None, b"value")
    append = produce_request("t", bytes(builder.build()))
    append.timeout_ms = INT_MAX
    return append


def endless_deletion() -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=10)
    topic = DeleteRecordsTopic(name="t", partitions=[partition])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=INT_MAX)


@pytest.mark.parametrize(
    ("name", "make", "version"),
    [("Produce", endless_append, 9), ("DeleteRecords", endless_deletion, 2)],
)
def test_a_delayed_request_ends_with_its_connection(
    name: str, make: Callable[[], Message], version: int
) -> None:
    cluster = three_nodes()
    leader = replicated(cluster)
    replicas = cluster.nodes[leader].broker.replicas
    for other in {1, 2, 3} - {leader}:
        cluster.world.network.partition(f"node-{leader}", f"node-{other}")
    cluster.send(leader, make(), version)
    cluster.until(lambda: replicas.waiting()[name] == 1)
    cluster._channel(leader, CLIENT_PORT).close()
    cluster.until(lambda: replicas.waiting()[name] == 0, 2_000)


def test_an_append_whose_client_left_while_its_records_were_inspected_does_not_wait() -> None:
    cluster = three_nodes()
    leader = replicated(cluster)
    compact(cluster)
    broker = cluster.nodes[leader].broker
    partition = broker.replicas.partition(TopicPartition("t", 0))
    assert isinstance(partition, Partition)
    log = partition.log
    cluster.until(lambda: "compact" in log.config.cleanup_policy)
    for other in {1, 2, 3} - {leader}:
        cluster.world.network.partition(f"node-{leader}", f"node-{other}")
    builder = BatchBuilder()
    for _ in range(INSPECTED_RECORDS):
        builder.append(0, b"key", b"value")
    append = produce_request("t", bytes(builder.build()))
    append.timeout_ms = INT_MAX
    end = log.log_end_offset
    cluster.send(leader, append, 9)
    cluster.until(lambda: len(broker._conversions) == 1)
    cluster._channel(leader, CLIENT_PORT).close()
    cluster.until(lambda: log.log_end_offset == end + INSPECTED_RECORDS)
    cluster.until(lambda: broker.replicas.waiting()["Produce"] == 0, 5_000)


def test_requests_that_wait_for_a_controller_are_bounded_and_end_with_their_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwarding, "_WAITING_BYTES_MAX", 10_000)
    cluster = SimulatedCluster({1: "broker,controller", 2: "broker"}).start()
    cluster.kill(1)
    cluster.world.run_for(1_000)
    waiting = cluster.nodes[2].broker._forwarding
    clients, outcomes = [], []
    for number in range(6):
        name = f"{number}".zfill(200)
        topics = [
            CreatableTopic(name=f"{name}{each}", num_partitions=1, replication_factor=1,
                           assignments=[], configs=[])
            for each in range(20)
        ]  # fmt: skip
        request = CreateTopicsRequest(topics=topics, timeout_ms=25_000)
        clients.append(SimulatedClient(cluster.world, f"own-{number}", CLIENT_PORT, host="node-2"))
        outcomes.append(clients[-1].send(request, 7))
        cluster.world.run_for(100)
    assert [bool(each) for each in outcomes] == [False, False, False, True, True, True]
    assert 10_000 <= waiting._waiting_bytes < 20_000
    for client in clients:
        client.channel.close()
    cluster.until(lambda: waiting._waiting_bytes == 0, 5_000)
    assert not waiting._waiting
