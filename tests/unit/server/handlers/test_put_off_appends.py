"""Batches that are validated in several turns: their order, other connections, the partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import DeleteTopicsRequest
from barnabas.record.builder import BatchBuilder
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient, produce_request

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message

MANY = 20_000
VERSION = 9


@pytest.fixture
def broker() -> SimulatedBroker:
    made = SimulatedBroker()
    made.make_topic("t", 2, cleanup_policy="compact")
    made.make_topic("plain")
    return made


def records(broker: SimulatedBroker, count: int, key: bytes | None = b"k", **options: int) -> bytes:
    builder = BatchBuilder(**options)
    for _ in range(count):
        builder.append(broker.host.clock.wall_ms(), key, b"v")
    return bytes(builder.build())


def answers(response: Any) -> list[tuple[str, int]]:
    """Error and base offset of each partition."""
    return [
        (ErrorCode(each.error_code).name, each.base_offset)
        for topic in response.responses
        for each in topic.partition_responses
    ]


class Client:
    """A connection that pipelines."""

    def __init__(self, broker: SimulatedBroker, name: str = "other") -> None:
        self._world = broker.world
        self.client = SimulatedClient(broker.world, name)

    def all_of(self, *requests: tuple[Message, int]) -> list[Any]:
        """Send all requests in one write, and wait for all responses."""
        outcomes = [self.client.send(request, version) for request, version in requests]
        assert self._world.run_until(lambda: all(outcomes))
        return [outcome[0][0] for outcome in outcomes]


def test_a_later_batch_does_not_overtake_a_batch_in_several_turns(
    broker: SimulatedBroker,
) -> None:
    many, one = records(broker, MANY), records(broker, 1)
    found = Client(broker).all_of(
        (produce_request("t", many), VERSION),
        (produce_request("t", one), VERSION),
        (produce_request("plain", one), VERSION),
        (produce_request("t", many), VERSION),
    )
    assert [answers(each)[0] for each in found] == [
        ("NONE", 0),
        ("NONE", MANY),
        ("NONE", 0),
        ("NONE", MANY + 1),
    ]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_an_idempotent_producer_s_batches_stay_in_order(broker: SimulatedBroker, acks: int) -> None:
    def of(count: int, sequence: int) -> tuple[Message, int]:
        made = records(broker, count, producer_id=7, producer_epoch=0, base_sequence=sequence)
        return produce_request("t", made, acks), VERSION

    client = Client(broker)
    requests = [of(MANY, 0), of(1, MANY), of(MANY, MANY + 1)]
    if acks:
        found = client.all_of(*requests)
        assert [answers(each) for each in found] == [
            [("NONE", 0)], [("NONE", MANY)], [("NONE", MANY + 1)],
        ]  # fmt: skip
        return
    for request, version in requests:
        client.client.channel.send(request, version, lambda *_: None, 30_000)
    ends = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            ListOffsetsTopic(
                name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
        ],
    )
    assert broker.world.run_until(
        lambda: client.all_of((ends, 7))[0].topics[0].partitions[0].offset == 2 * MANY + 1
    )


def test_a_retry_over_another_connection_is_a_duplicate(broker: SimulatedBroker) -> None:
    made = records(broker, MANY, producer_id=7, producer_epoch=0, base_sequence=0)
    first, second = Client(broker, "first"), Client(broker, "second")
    lost = first.client.send(produce_request("t", made), VERSION)
    first.client.channel.close()
    response = second.all_of((produce_request("t", made), VERSION))[0]
    assert answers(response) == [("NONE", 0)]
    assert broker.world.run_until(lambda: bool(lost))
    after = records(broker, 1, producer_id=7, producer_epoch=0, base_sequence=MANY)
    assert answers(second.all_of((produce_request("t", after), VERSION))[0]) == [("NONE", MANY)]


def test_other_connections_are_served_between_the_steps(broker: SimulatedBroker) -> None:
    client, other = Client(broker, "first"), Client(broker, "second")
    # It decompresses to 3 MB, off the loop, which takes long.
    broker.host.runtime.executor.delay_max_ms = 5_000.0
    many = records(broker, 15 * MANY, compression=4)
    waiting = client.client.send(produce_request("t", many), VERSION)
    one = (produce_request("plain", records(broker, 1)), VERSION)
    served = 0
    while not waiting:
        assert answers(other.all_of(one)[0])[0][0] == "NONE"
        served += 1
    assert answers(waiting[0][0]) == [("NONE", 0)]
    assert served > 10


def test_the_partitions_of_a_request_are_answered_together(broker: SimulatedBroker) -> None:
    bad = records(broker, MANY, key=None)
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=0, records=records(broker, MANY)),
                    PartitionProduceData(index=1, records=bad),
                ],
            ),
            TopicProduceData(
                name="plain",
                partition_data=[PartitionProduceData(index=0, records=records(broker, 2))],
            ),
        ],
    )
    response = Client(broker).all_of((request, VERSION))[0]
    assert answers(response) == [("NONE", 0), ("INVALID_RECORD", -1), ("NONE", 0)]


def test_a_partition_deleted_during_the_validation_appends_nothing(
    broker: SimulatedBroker,
) -> None:
    client, other = Client(broker, "first"), Client(broker, "second")
    # It decompresses to 3 MB, off the loop, which takes long.
    broker.host.runtime.executor.delay_max_ms = 5_000.0
    many = records(broker, 15 * MANY, compression=4)
    waiting = client.client.send(produce_request("t", many), VERSION)
    conversions = broker.node.broker.dependencies.conversions
    assert broker.world.run_until(lambda: len(conversions) == 1), answers(waiting[0][0])
    other.all_of((DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 4))
    assert not waiting
    assert broker.world.run_until(lambda: bool(waiting))
    assert answers(waiting[0][0])[0][0] in ("UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER")


def test_a_disconnected_client_only_loses_its_response(broker: SimulatedBroker) -> None:
    client, other = Client(broker, "first"), Client(broker, "second")
    client.client.send(produce_request("t", records(broker, MANY)), VERSION)
    conversions = broker.node.broker.dependencies.conversions
    assert broker.world.run_until(lambda: len(conversions) == 1)
    client.client.channel.close()
    assert broker.world.run_until(lambda: len(conversions) == 0)
    after = other.all_of((produce_request("t", records(broker, 1)), VERSION))[0]
    assert answers(after) == [("NONE", MANY)]
    assert not broker.failures
