"""The order and the size of fetched output, and partitions that are held back."""

from __future__ import annotations

import pytest

from barnabas.client.errors import ClientError
from barnabas.client.fetch.fetch_buffer import FetchBuffer, FetchedSet, FetchState
from barnabas.client.fetch.record_set import FetchFailure, RecordSet, scan_records
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.builder import BatchBuilder

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class HoldableState(FetchState):
    """A partition that the test holds back."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(tp)
        self.holds = False
        self.start(0)

    @property
    def is_held(self) -> bool:
        return self.holds


def fetch(buffer: FetchBuffer, state: FetchState, count: int = 2) -> int:
    """Add a set of `count` records at the fetch offset; return its size (bytes)."""
    offset = state.fetch_offset
    builder = BatchBuilder(base_offset=offset, leader_epoch=offset)
    for _ in range(count):
        builder.append(0, None, b"v")
    data = bytes(builder.build())
    batches = scan_records(data, check_crcs=True).batches
    tp = state.tp
    record_set = RecordSet(tp.topic, tp.partition, offset, offset + count, data, 99, 0, (), batches)
    buffer.add(state, state.on_fetched(record_set))
    return len(data)


def drain(buffer: FetchBuffer) -> list[tuple[TopicPartition, int]]:
    """Remove all items; return the partition and first offset of each set."""
    found = []
    while (state := buffer.first) is not None:
        item = buffer.pop()
        assert isinstance(item, FetchedSet)
        found.append((state.tp, item.record_set.first_offset))
    return found


def begin(buffer: FetchBuffer) -> None:
    buffer.begin(lambda _error: None)


def test_sets_are_returned_in_order_of_arrival() -> None:
    buffer, a, b = FetchBuffer(1_000), HoldableState(A), HoldableState(B)
    for state in (a, a, b, a):
        fetch(buffer, state)
    assert drain(buffer) == [(A, 0), (A, 2), (B, 0), (A, 4)]
    assert not buffer


def test_the_buffer_is_full_until_enough_sets_have_begun() -> None:
    buffer, a = FetchBuffer(100), HoldableState(A)
    size = fetch(buffer, a)
    assert not buffer.is_full
    assert buffer.queued_bytes == size
    fetch(buffer, a)
    assert buffer.is_full
    begin(buffer)
    assert not buffer.is_full
    assert buffer.queued_bytes == size
    buffer.pop()
    buffer.pop()
    assert buffer.queued_bytes == 0


def test_dropped_sets_are_not_returned_and_no_longer_counted() -> None:
    buffer, a, b = FetchBuffer(1_000), HoldableState(A), HoldableState(B)
    fetch(buffer, a)
    size = fetch(buffer, b)
    buffer.drop(a)
    assert buffer.queued_bytes == size
    assert drain(buffer) == [(B, 0)]


def test_of_a_held_partition_only_the_first_set_is_kept_and_the_others_are_fetched_again() -> None:
    buffer, a, b = FetchBuffer(1_000), HoldableState(A), HoldableState(B)
    for state in (a, a, a, b):
        fetch(buffer, state)
    a.holds = True
    buffer.hold(a)
    assert (a.fetch_offset, a.fetch_epoch, len(a.buffered)) == (2, 0, 1)
    assert drain(buffer) == [(B, 0)]
    assert buffer.queued_bytes == 0
    a.holds = False
    buffer.release(a)
    assert buffer.queued_bytes > 0
    assert drain(buffer) == [(A, 0)]


def test_a_held_partition_keeps_the_set_that_has_begun_and_one_more() -> None:
    buffer, a, b = FetchBuffer(1_000), HoldableState(A), HoldableState(B)
    for state in (a, b, a, a):
        fetch(buffer, state)
    begin(buffer)
    a.holds = True
    buffer.hold(a)
    assert (a.fetch_offset, len(a.buffered)) == (4, 2)
    a.holds = False
    buffer.release(a)
    assert drain(buffer) == [(A, 0), (B, 0), (A, 2)]


def test_a_partition_with_discarded_sets_is_fetched_again_although_it_had_failed() -> None:
    buffer, a = FetchBuffer(1_000), HoldableState(A)
    fetch(buffer, a)
    a.is_stopped = True
    buffer.add_failure(a, FetchFailure(A, ClientError("no")))
    a.holds = True
    buffer.hold(a)
    assert not a.is_stopped
    assert len(a.buffered) == 1


def test_a_dropped_partition_that_is_held_leaves_the_size_as_it_is() -> None:
    buffer, a, b = FetchBuffer(1_000), HoldableState(A), HoldableState(B)
    fetch(buffer, a)
    size = fetch(buffer, b)
    a.holds = True
    buffer.hold(a)
    buffer.drop(a)
    assert buffer.queued_bytes == size


def test_a_set_that_is_put_back_is_returned_first() -> None:
    buffer, a, b = FetchBuffer(1_000), HoldableState(A), HoldableState(B)
    fetch(buffer, a)
    fetch(buffer, b)
    begin(buffer)
    item = buffer.pop()
    assert isinstance(item, FetchedSet)
    buffer.put_back(a, item)
    assert drain(buffer) == [(A, 0), (B, 0)]


def test_a_partition_with_output_is_not_started() -> None:
    buffer, a = FetchBuffer(1_000), HoldableState(A)
    fetch(buffer, a)
    with pytest.raises(AssertionError, match="t"):
        a.start(0)
