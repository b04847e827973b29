"""The producer: new partitions, serializers, interceptors, deliveries and closing."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.errors import (
    ClientClosedError,
    ClientError,
    ClientTimeoutError,
    UnknownPartitionError,
    UnknownTopicError,
)
from barnabas.client.producer.partitioner import partition_for_key
from barnabas.client.producer.producer_batch import RecordMetadata
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.reader import records
from unit.client.producer.producer_setup import Setup

if TYPE_CHECKING:
    from barnabas.client.producer.user_objects import ProducerRecord

RECORD = (None, b"x", (), None)
TURNS = cycle([0, 1])


def test_a_partition_that_was_added_is_found() -> None:
    setup = Setup()
    setup.producer.send("t", b"x")
    setup.cluster.on_refresh = [lambda: None, lambda: setup.cluster.set_partitions(4)]
    setup.producer.send("t", b"x", partition=3)
    assert setup.cluster.refreshes == 2


def partition_of(delivery: Any) -> int:
    number: int = delivery._batch.tp.partition
    return number


def test_a_repeated_key_moves_with_the_number_of_partitions() -> None:
    setup = Setup()
    before = [partition_of(setup.producer.send("t", b"x", b"21")) for _ in range(2)]
    setup.cluster.set_partitions(7)
    after = [partition_of(setup.producer.send("t", b"x", b"21")) for _ in range(2)]
    assert before == [partition_for_key(b"21", 2)] * 2
    assert after == [partition_for_key(b"21", 7)] * 2


@pytest.mark.parametrize(
    "partitioner", ["round_robin", lambda key, partitions, available: next(TURNS)]
)
def test_round_robin_and_functions_choose_anew_for_a_repeated_key(partitioner: Any) -> None:
    setup = Setup(partitioner=partitioner)
    chosen = [partition_of(setup.producer.send("t", b"x", b"key")) for _ in range(4)]
    assert chosen in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_a_bytearray_selects_the_partition_of_its_bytes() -> None:
    setup = Setup()
    key = bytearray(b"21")
    assert partition_of(setup.producer.send("t", b"x", key)) == partition_for_key(b"21", 2)


def test_a_batch_for_a_partition_that_was_added_is_taken() -> None:
    setup = Setup()
    setup.cluster.on_refresh = [lambda: setup.cluster.set_partitions(3)]
    setup.producer.send_batch("t", [RECORD], partition=2)
    assert setup.cluster.refreshes == 1


def test_a_known_partition_needs_no_refresh() -> None:
    setup = Setup()
    setup.producer.send("t", b"x", partition=1)
    assert not setup.cluster.refreshes


def test_a_cached_topic_is_updated_when_its_leaders_change() -> None:
    setup = Setup()
    assert setup.cluster.tracked == set()
    setup.producer.send("t", b"x", partition=1)
    assert setup.cluster.tracked == {"t"}


def test_the_error_of_a_missing_partition_lists_the_existing_ones() -> None:
    setup = Setup()
    with pytest.raises(UnknownPartitionError, match="t has partitions 0 to 1"):
        setup.producer.send("t", b"x", partition=2)
    assert setup.cluster.refreshes > 1


def test_a_missing_partition_is_awaited_for_max_block_ms() -> None:
    setup = Setup(max_block_ms=50)
    with pytest.raises(UnknownTopicError):
        setup.producer.send_batch("t", [RECORD], partition=2)
    assert setup.cluster.time.now <= 50


def test_a_negative_partition_is_refused_at_once() -> None:
    setup = Setup()
    with pytest.raises(UnknownPartitionError):
        setup.producer.send("t", b"x", partition=-1)
    assert not setup.cluster.refreshes


def test_a_closed_producer_is_reported_once() -> None:
    setup = Setup()
    setup.producer.close()
    setup.producer.close()
    assert setup.closed == [setup.producer]


def test_a_closed_producer_refuses_records() -> None:
    setup = Setup()
    setup.producer.send("t", b"x", partition=0)
    setup.producer.close(flush=False)
    with pytest.raises(ClientClosedError):
        setup.producer.send("t", b"x", partition=0)


def test_serializers_get_only_the_value() -> None:
    setup = Setup({"key_serializer": str.encode, "value_serializer": lambda value: b"%d" % value})
    setup.producer.send("t", 7, "k", partition=0)
    setup.producer.send_batch("t", [("k", 8, (), None)], partition=0)
    (batch,) = setup.producer._accumulator.incomplete()
    batch.close(0, None)
    assert [(each.key, each.value) for each in records(batch.data)] == [(b"k", b"7"), (b"k", b"8")]


class Tagging:
    """An interceptor that changes topics, fails on "bad", and records its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[RecordMetadata | None, ClientError | None]] = []
        self.closed = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        if record.value == b"bad":
            raise RuntimeError("not this one")
        return record._replace(topic="t", headers=[("tag", b"1")])

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ClientError | None
    ) -> None:
        self.told.append((metadata, error))
        raise RuntimeError("never mind")

    def close(self) -> None:
        self.closed += 1


def test_interceptors_get_records_and_deliveries_and_cause_no_failure() -> None:
    tagging = Tagging()
    setup = Setup({"interceptors": [tagging]})
    setup.producer.send("elsewhere", b"x", partition=0)
    setup.producer.send("t", b"bad", partition=0)
    (batch,) = setup.producer._accumulator.incomplete()
    setup.producer.close(flush=False)
    assert batch.count == 2
    assert [type(error) for _, error in tagging.told] == [ClientClosedError] * 2
    assert tagging.closed == 1


def settled(setup: Setup, error: ClientError | None) -> None:
    (batch,) = setup.producer._accumulator.incomplete()
    if error is None:
        batch.complete(100, -1)
    else:
        batch.fail(error)
    setup.producer._core._on_completed(batch, error)
    batch.run_callbacks()


def test_a_delivery_has_its_offset_when_the_batch_is_complete() -> None:
    setup = Setup()
    first = setup.producer.send("t", b"x", partition=1, timestamp_ms=5)
    second = setup.producer.send("t", b"y", partition=1)
    assert not first.done()
    settled(setup, None)
    assert first.result() == RecordMetadata("t", 1, 100, 5)
    assert second.result().offset == 101
    assert second.exception() is None


def test_a_failure_raised_by_its_delivery_is_not_raised_by_flush() -> None:
    setup = Setup()
    delivery = setup.producer.send("t", b"x", partition=1)
    settled(setup, ClientError("gone"))
    with pytest.raises(ClientError, match="gone"):
        delivery.result()
    assert setup.producer._core.pop_unreported_error() is None


def test_an_unread_failure_is_raised_by_flush() -> None:
    setup = Setup()
    setup.producer.send("t", b"x", partition=1)
    settled(setup, ClientError("gone"))
    error = setup.producer._core.pop_unreported_error()
    assert str(error) == "gone"


def test_a_delivery_calls_back_when_it_is_done() -> None:
    setup = Setup()
    delivery = setup.producer.send("t", b"x", partition=1)
    done: list[object] = []
    delivery.add_done_callback(done.append)
    assert not done
    settled(setup, None)
    delivery.add_done_callback(done.append)
    assert done == [delivery, delivery]


def test_a_delivery_follows_its_record_into_the_half_of_a_split_batch() -> None:
    setup = Setup()
    deliveries = [setup.producer.send("t", b"%d" % number, partition=0) for number in range(5)]
    accumulator = setup.producer._accumulator
    queue = accumulator.queue(TopicPartition("t", 0))
    accumulator.close_open(queue)
    accumulator.split(queue, queue.closed.popleft())
    first, second = queue.closed
    second.complete(200, -1)
    first.complete(100, -1)
    assert [delivery.result().offset for delivery in deliveries] == [100, 101, 200, 201, 202]


def test_a_wait_for_a_delivery_ends_at_its_timeout() -> None:
    setup = Setup()
    with pytest.raises(ClientTimeoutError, match="t-1"):
        setup.producer.send("t", b"x", partition=1).result(0.1)


def test_metrics_contain_the_buffer_state() -> None:
    setup = Setup(buffer_memory=1_000_000, batch_size=1000)
    setup.producer.send("t", b"x", partition=1)
    counted = setup.producer.metrics()
    assert counted["buffer-total-bytes"] - counted["buffer-available-bytes"] == 1000
    assert counted["record-error-total"] == 0


def test_a_client_releases_closed_producers() -> None:
    from barnabas.client.facade import Client

    with Client("127.0.0.1:1") as client:
        client.producer().close()
        assert not client._producers
