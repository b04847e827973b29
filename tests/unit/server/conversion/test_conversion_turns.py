"""Conversions of many small partitions take several turns of the event loop."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.record.legacy import write_message_set
from barnabas.record.record import Record
from barnabas.server.conversion import old_versions
from barnabas.storage.log import batch_inspection
from unit.server.simulated_broker import TIMEOUT_MS, SimulatedBroker, SimulatedClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message


PARTITIONS = 10
MESSAGE = write_message_set(1, [Record(0, 1000, 0, None, b"v")])


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> SimulatedBroker:
    """A broker that converts two partitions in one step: each counts like a record."""
    monkeypatch.setattr(old_versions, "RECORDS_PER_STEP", 4)
    made = SimulatedBroker()
    made.make_topic("t", PARTITIONS)
    return made


def growth_per_turn(
    broker: SimulatedBroker, request: Message, version: int, count: Callable[[], int]
) -> list[int]:
    """Send a request, and return by how much a counter grew in each turn in which it did."""
    outcome = broker.client.send(request, version)
    counts = []

    def is_done() -> bool:
        counts.append(count())
        return bool(outcome)

    assert broker.world.run_until(is_done)
    return [after - before for before, after in pairwise(counts) if after != before]


def produce_to_all() -> ProduceRequest:
    partitions = [PartitionProduceData(index=each, records=MESSAGE) for each in range(PARTITIONS)]
    return ProduceRequest(
        acks=1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name="t", partition_data=partitions)],
    )


def fetch_of_all() -> FetchRequest:
    asked = [
        FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1000)
        for each in range(PARTITIONS)
    ]
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=asked)]
    )


def test_old_requests_are_converted_in_several_turns(broker: SimulatedBroker) -> None:
    metrics = broker.node.broker.replicas.metrics
    found = growth_per_turn(
        broker, produce_to_all(), 2, lambda: metrics.all_topics().produce_conversions
    )
    assert found == [2] * (PARTITIONS // 2)
    found = growth_per_turn(
        broker, fetch_of_all(), 3, lambda: metrics.all_topics().fetch_conversions
    )
    assert found == [2] * (PARTITIONS // 2)


def test_a_conversion_for_a_response_ends_with_its_connection(broker: SimulatedBroker) -> None:
    broker.ask(produce_to_all(), 2)
    SimulatedClient(broker.world, "other").send(fetch_of_all(), 3)
    conversions = broker.node.broker.dependencies.conversions
    assert broker.world.run_until(lambda: len(conversions) == 1)
    broker.node.broker.listeners[0].connections[-1].abort()
    assert broker.world.run_until(lambda: len(conversions) == 0)
    assert broker.node.broker.replicas.metrics.all_topics().fetch_conversions < PARTITIONS


def test_a_conversion_for_the_log_goes_on_without_its_connection(broker: SimulatedBroker) -> None:
    SimulatedClient(broker.world, "other").send(produce_to_all(), 2)
    conversions = broker.node.broker.dependencies.conversions
    assert broker.world.run_until(lambda: len(conversions) == 1)
    broker.node.broker.listeners[0].connections[-1].abort()
    assert broker.world.run_until(lambda: len(conversions) == 0)
    assert broker.node.broker.replicas.metrics.all_topics().produce_conversions == PARTITIONS


def test_an_append_whose_inspection_raises_gets_an_error(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_memory(*_: object) -> bytes:
        raise MemoryError

    broker.make_topic("zipped", compression_type="gzip")
    monkeypatch.setattr(batch_inspection, "compress", without_memory)
    large = b"v" * (batch_inspection._COMPRESSED_INLINE_BYTES + 1)
    assert broker.produce("zipped", large).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    monkeypatch.undo()
    assert broker.produce("zipped", large).error_code == ErrorCode.NONE
