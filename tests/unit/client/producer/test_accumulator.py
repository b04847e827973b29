"""Batches that wait to be sent: readiness and order."""

from __future__ import annotations

import pytest

from barnabas.client.errors import RecordTooLargeError
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.record.batch import read_header
from barnabas.record.compression import NAMES
from barnabas.record.reader import read_batches
from unit.client.producer.accumulators import TP, accumulator, add
from unit.client.scripted_cluster import HandTime


def in_flight(to: Accumulator, count: int) -> list[ProducerBatch]:
    batches = []
    for _ in range(count):
        batch = to.take(to.queue(TP))
        assert batch is not None
        batch.attempts += 1
        to.queue(TP).in_flight.append(batch)
        batches.append(batch)
    return batches


def test_a_batch_is_ready_when_the_next_record_does_not_fit() -> None:
    made = accumulator(HandTime(), batch_size=200, linger_ms=1000)
    add(made, b"x" * 100)
    assert not made.ready
    add(made, b"x" * 100)
    assert made.take(made.queue(TP)) is not None


def test_a_batch_is_ready_after_the_linger_time() -> None:
    time = HandTime()
    made = accumulator(time, linger_ms=5)
    add(made, b"x")
    time.advance(4)
    assert not made.ready
    time.advance(1)
    assert made.take(made.queue(TP)) is not None


def test_a_flush_makes_all_batches_ready() -> None:
    made = accumulator(HandTime(), linger_ms=1000)
    add(made, b"x")
    made.make_all_due()
    assert made.take(made.queue(TP)) is not None
    assert made.take(made.queue(TP)) is None


def test_a_full_buffer_accepts_no_record() -> None:
    made = accumulator(HandTime(), batch_size=200, buffer_memory=400, linger_ms=1000)
    while made.append(TP, (None, b"x" * 100, (), None), 1000, None):
        assert made.reserved_bytes <= 400
    assert not made.has_room


def test_extend_returns_the_record_that_did_not_fit() -> None:
    made = accumulator(HandTime(), batch_size=200, buffer_memory=400, linger_ms=1000)
    records = iter([(None, b"%03d" % n + b"x" * 97, (), None) for n in range(10)])
    pending = made.extend(TP, records, None, 1000)
    assert pending is not None
    assert pending[1] is not None
    assert len(list(records)) == 10 - int(pending[1][:3]) - 1


def test_the_header_has_the_first_and_the_largest_timestamp() -> None:
    times = [50, 90, 40]
    one_by_one = accumulator(HandTime(), linger_ms=1000)
    for time in times:
        one_by_one.append(TP, (None, b"x", (), time), 1000, None)
    together = accumulator(HandTime(), linger_ms=1000)
    together.extend(TP, iter([(None, b"x", (), time) for time in times]), None, 1000)
    for made in (one_by_one, together):
        made.make_all_due()
        (batch,) = in_flight(made, 1)
        assert batch.data is not None
        header = read_header(batch.data)
        assert (header.base_timestamp, header.max_timestamp) == (50, 90)
        assert (header.record_count, header.last_offset_delta) == (3, 2)


def test_a_record_over_the_request_size_is_an_error() -> None:
    made = accumulator(HandTime(), max_request_size=1000)
    with pytest.raises(RecordTooLargeError):
        add(made, b"x" * 1000)


def test_a_failed_batch_is_sent_before_later_batches() -> None:
    made = accumulator(HandTime(), batch_size=200, linger_ms=1000)
    add(made, b"x" * 100, 5)
    first, second = in_flight(made, 2)
    queue = made.queue(TP)
    queue.in_flight.clear()
    queue.put_back(second)
    queue.put_back(first)
    assert [batch.number for batch in queue.closed] == [0, 1, 2, 3]


def test_a_retried_batch_is_sent_alone() -> None:
    made = accumulator(HandTime(), batch_size=200, linger_ms=1000)
    add(made, b"x" * 100, 5)
    first, second = in_flight(made, 2)
    queue = made.queue(TP)
    queue.in_flight.remove(first)
    queue.put_back(first)
    assert made.take(queue) is None
    queue.in_flight.remove(second)
    queue.put_back(second)
    assert in_flight(made, 1) == [first]
    assert made.take(queue) is None


@pytest.mark.parametrize("compression", NAMES)
def test_batches_are_compressed_and_carry_the_producer(compression: str) -> None:
    made = accumulator(HandTime(), compression_type=compression)
    add(made, b"x" * 100, 3)
    made.make_all_due()
    (batch,) = in_flight(made, 1)
    batch.set_producer(7, 2, 55)
    assert batch.data is not None
    ((header, records),) = read_batches(batch.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 55)
    assert NAMES[header.compression] == compression
    assert [record.value for record in records] == [b"x" * 100] * 3


def test_no_batch_is_sent_together_with_a_retried_batch() -> None:
    waiting = accumulator(HandTime(), batch_size=150)
    for number in range(2):
        add(waiting, b"%100d" % number)
    waiting.make_all_due()
    (first,) = in_flight(waiting, 1)
    first.attempts += 1
    assert waiting.take(waiting.queue(TP)) is None
    first.attempts -= 1
    assert waiting.take(waiting.queue(TP)) is not None
