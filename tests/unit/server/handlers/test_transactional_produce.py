"""Produce requests with a transactional id: errors of partitions that cannot be written to."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.record.builder import BatchBuilder
from unit.server.simulated_broker import SimulatedBroker

VERSION = 11


def errors(broker: SimulatedBroker, topic: str, *partitions: int) -> list[ErrorCode]:
    """The errors of a transactional batch for each of these partitions."""
    builder = BatchBuilder(producer_id=77, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(broker.host.clock.wall_ms(), None, b"v")
    records = bytes(builder.build())
    data = [PartitionProduceData(index=each, records=records) for each in partitions]
    request = ProduceRequest(
        transactional_id="t",
        acks=-1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    (found,) = broker.ask(request, VERSION).responses
    return [ErrorCode(each.error_code) for each in found.partition_responses]


@pytest.mark.parametrize("partitions", [(0,), (0, 0)])
def test_a_topic_that_was_deleted_is_unknown(partitions: tuple[int, ...]) -> None:
    found = errors(SimulatedBroker(), "deleted", *partitions)
    assert set(found) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_partition_that_is_named_twice_is_not_a_batch_without_transaction() -> None:
    broker = SimulatedBroker()
    broker.make_topic("topic")
    found = errors(broker, "topic", 0, 0)
    assert ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED not in found
