"""Requests of one connection are executed one at a time, as in Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
)
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from barnabas.protocol.messages.topics import DeleteTopicsRequest
from barnabas.record.builder import BatchBuilder
from unit.server.handlers.fetch_requests import replicated
from unit.server.process.drain import long_fetch
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient, produce_request
from unit.server.simulated_cluster import CLIENT_PORT, SimulatedCluster, three_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.produce import ProduceRequest
    from barnabas.protocol.schema import Message

WAIT_MS = 500


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name="t")])


def list_offsets() -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])]
    )


def short_fetch() -> Message:
    request = long_fetch("t")
    request.max_wait_ms, request.min_bytes = 0, 1
    return request


def make_anew(broker: SimulatedBroker) -> None:
    broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    broker.make_topic("t")


def write(broker: SimulatedBroker) -> None:
    assert broker.produce("t", b"value").error_code == 0


def topic_id(response: Any) -> Any:
    return response.topics[0].topic_id


def end_offset(response: Any) -> Any:
    return response.topics[0].partitions[0].offset


def high_watermark(response: Any) -> Any:
    return response.responses[0].partitions[0].high_watermark


@pytest.mark.parametrize(
    ("make", "version", "change", "read"),
    [
        pytest.param(metadata, 12, make_anew, topic_id, id="metadata of a topic made anew"),
        pytest.param(list_offsets, 7, write, end_offset, id="the end offset"),
        pytest.param(short_fetch, 12, write, high_watermark, id="a second fetch"),
    ],
)
def test_a_request_behind_a_waiting_fetch_sees_what_changed_meanwhile(
    make: Callable[[], Message],
    version: int,
    change: Callable[[SimulatedBroker], None],
    read: Callable[[Any], Any],
) -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    broker.make_topic("other")
    client = SimulatedClient(broker.world, "pipelining")
    waiting = long_fetch("other")
    waiting.max_wait_ms = WAIT_MS
    before = read(broker.ask(make(), version))
    client.send(waiting, 12)
    behind = client.send(make(), version)
    broker.world.run_for(WAIT_MS / 5)
    change(broker)
    assert broker.world.run_until(lambda: bool(behind))
    response, error = behind[0]
    assert error is None
    assert read(response) == read(broker.ask(make(), version)) != before


def test_a_produce_behind_a_waiting_fetch_is_not_visible_early() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    client = SimulatedClient(broker.world, "pipelining")
    client.send(long_fetch("t"), 12)
    behind = client.send(produce_request("t", broker.batch(b"value")), 9)
    broker.world.run_for(WAIT_MS)
    assert end_offset(broker.ask(list_offsets(), 7)) == 0
    assert broker.world.run_until(lambda: bool(behind))
    assert end_offset(broker.ask(list_offsets(), 7)) == 1


def cut_off_leader() -> tuple[SimulatedCluster, SimulatedClient]:
    """Return a cluster in which no write to the topic is replicated, and a client of its leader."""
    cluster = three_nodes()
    leader = replicated(cluster)
    for other in {1, 2, 3} - {leader}:
        cluster.world.network.partition(f"node-{leader}", f"node-{other}")
    host = f"node-{leader}"
    return cluster, SimulatedClient(cluster.world, "pipelining", CLIENT_PORT, host=host)


def append() -> ProduceRequest:
    builder = BatchBuilder()
    builder.append(0, None, b"value")
    request = produce_request("t", bytes(builder.build()))
    request.timeout_ms = WAIT_MS
    return request


def waiting_produces(cluster: SimulatedCluster) -> int:
    return max(each.broker.replicas.waiting()["Produce"] for each in cluster.nodes.values())


def test_a_produce_does_not_wait_for_the_replication_of_another() -> None:
    cluster, client = cut_off_leader()
    outcomes = [client.send(append(), 9) for _ in range(3)]
    cluster.until(lambda: waiting_produces(cluster) == 3)
    assert not any(outcomes)


def test_other_requests_wait_for_the_replication_of_a_produce() -> None:
    cluster, client = cut_off_leader()
    client.send(append(), 9)
    fetched = client.send(short_fetch(), 12)
    client.send(append(), 9)
    cluster.world.run_for(WAIT_MS / 2)
    assert waiting_produces(cluster) == 1
    cluster.until(lambda: bool(fetched), WAIT_MS)
    cluster.until(lambda: waiting_produces(cluster) == 1)


def join(member_id: str) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def joined(client: SimulatedClient) -> tuple[str, list[Any]]:
    """Send a JoinGroup with the id that the broker gives; return the id and the outcome."""
    member_id = client.ask(join(""), 4).member_id
    return member_id, client.send(join(member_id), 4)


def test_a_member_that_leaves_behind_its_waiting_join_and_disconnects_is_removed() -> None:
    broker = SimulatedBroker(
        group_initial_rebalance_delay_ms="0",
        offsets_topic_num_partitions="1",
        offsets_topic_replication_factor="1",
    )
    first = SimulatedClient(broker.world, "first")
    while first.ask(FindCoordinatorRequest(key="g", key_type=0), 3).error_code:
        broker.world.run_for(100)
    while first.ask(join(""), 4).error_code != ErrorCode.MEMBER_ID_REQUIRED:
        broker.world.run_for(100)
    _, outcome = joined(first)
    assert broker.world.run_until(lambda: bool(outcome))
    second = SimulatedClient(broker.world, "second")
    member_id, outcome = joined(second)
    second.send(LeaveGroupRequest(group_id="g", member_id=member_id), 2)
    broker.world.run_for(100)
    assert not outcome
    second.channel.close()

    def members() -> int:
        described = broker.ask(DescribeGroupsRequest(groups=["g"]), 5)
        return len(described.groups[0].members)

    assert members() == 2
    broker.world.run_for(2_000)
    assert members() == 1
