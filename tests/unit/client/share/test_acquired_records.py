"""Which records an acquisition returns, and which offsets the client acknowledges itself."""

from __future__ import annotations

from hypothesis import given, strategies as st

from barnabas.client.consumer.user_objects import Deserializing
from barnabas.client.errors import CorruptRecordsError, RecordDeserializationError
from barnabas.client.share.acknowledgements import GAP, AckBatch, AcknowledgeType
from barnabas.client.share.acquired_records import (
    AcquiredRange,
    AcquiredRecords,
    Decoding,
    ShareSource,
)
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.batch import ControlType, encode_control_key
from barnabas.record.builder import BatchBuilder
from barnabas.record.record import Record

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
SOURCE = ShareSource(1, b"t" * 16, TopicPartition("t", 0))
# Records, batches of acknowledgements and error of each part.
Part = tuple[list[int], list[AckBatch], type[Exception] | None]


def batch(base_offset: int, count: int, value: bytes = b"1") -> bytes:
    builder = BatchBuilder(base_offset=base_offset)
    for _ in range(count):
        builder.append(0, None, value)
    return bytes(builder.build())


def damaged(data: bytes) -> bytes:
    """The batch with another last byte, which its CRC does not fit."""
    return data[:-1] + bytes([data[-1] ^ 1])


def marker(base_offset: int) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, producer_id=1, transactional=True, control=True)
    builder.append(0, encode_control_key(ControlType.COMMIT), b"\0" * 6)
    return bytes(builder.build())


def acquired(data: bytes, *ranges: tuple[int, int]) -> AcquiredRecords:
    decoding = Decoding(Deserializing(None, int), True)
    return AcquiredRecords(SOURCE, data, [AcquiredRange(*each, 1) for each in ranges], decoding)


def parts(data: bytes, *ranges: tuple[int, int]) -> list[Part]:
    found: list[Part] = []
    records = acquired(data, *ranges)
    while (part := records.peek()) is not None:
        records.take()
        kind = None if part.error is None else type(part.error)
        offsets = [record.offset for record in part.records]
        found.append((offsets, part.acknowledgements.batches(), kind))
    return found


def test_only_acquired_records_are_returned() -> None:
    data = batch(0, 5) + batch(5, 5)
    assert parts(data, (1, 2), (4, 6)) == [([1, 2, 4], [], None), ([5, 6], [], None)]


def test_delivery_counts_are_those_of_the_ranges() -> None:
    ranges = [AcquiredRange(0, 0, 3), AcquiredRange(1, 2, 1)]
    found = AcquiredRecords(SOURCE, batch(0, 3), ranges, Decoding(Deserializing(None, None), True))
    part = found.peek()
    assert part is not None
    assert [record.delivery_count for record in part.records] == [3, 1, 1]


def test_offsets_without_a_record_are_gaps() -> None:
    builder = BatchBuilder(base_offset=0)
    builder.append_at(Record(0, 0, 0, None, b"1", ()))
    builder.append_at(Record(3, 0, 0, None, b"1", ()))
    data = bytes(builder.build())
    assert parts(data, (0, 5)) == [
        ([0, 3], [AckBatch(1, 2, (GAP,))], None),
        ([], [AckBatch(4, 5, (GAP,))], None),
    ]


def test_markers_of_transactions_are_gaps() -> None:
    assert parts(batch(0, 1) + marker(1) + batch(2, 1), (0, 2)) == [
        ([0], [], None),
        ([2], [AckBatch(1, 1, (GAP,))], None),
    ]


def test_a_response_without_records_has_only_gaps() -> None:
    assert parts(b"", (7, 2**62)) == [([], [AckBatch(7, 2**62, (GAP,))], None)]


def test_a_corrupt_batch_is_rejected_and_the_next_batch_is_read() -> None:
    data = batch(0, 2) + damaged(batch(2, 2)) + batch(4, 1)
    assert parts(data, (0, 4)) == [
        ([0, 1], [], None),
        ([], [AckBatch(2, 3, (REJECT,))], CorruptRecordsError),
        ([4], [], None),
    ]


def test_a_corrupt_batch_without_acquired_records_is_skipped() -> None:
    assert parts(damaged(batch(0, 2)) + batch(2, 1), (2, 2)) == [([2], [], None)]


def test_bytes_that_are_no_batch_release_what_follows() -> None:
    data = batch(0, 1) + b"\0" * 70
    assert parts(data, (0, 4)) == [([0], [], None), ([], [AckBatch(1, 4, (RELEASE,))], None)]


def test_an_incomplete_batch_is_released() -> None:
    assert parts(batch(0, 1) + batch(1, 3)[:-2], (0, 3)) == [
        ([0], [], None),
        ([], [AckBatch(1, 3, (RELEASE,))], None),
    ]


def test_a_record_that_cannot_be_deserialized_is_released() -> None:
    data = batch(0, 2) + batch(2, 1, b"x") + batch(3, 1)
    assert parts(data, (0, 3)) == [
        ([0, 1], [], None),
        ([], [AckBatch(2, 2, (RELEASE,))], RecordDeserializationError),
        ([3], [], None),
    ]


def test_ranges_that_are_empty_or_overlap_are_ignored() -> None:
    assert parts(batch(0, 5), (0, 1), (1, 3), (4, 3), (-5, -1), (4, 4)) == [([0, 1, 4], [], None)]


def test_everything_that_was_not_taken_can_be_released() -> None:
    found = acquired(batch(0, 2) + batch(2, 2) + batch(4, 2), (0, 5))
    assert found.peek() is not None
    found.take()
    assert found.peek() is not None
    assert found.release().batches() == [AckBatch(2, 5, (RELEASE,))]
    assert found.peek() is None


BATCHES = batch(0, 3) + batch(3, 2, b"x") + marker(5) + batch(6, 4)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=4),
    st.lists(st.tuples(st.integers(0, len(BATCHES) - 1), st.integers(0, 255)), max_size=3),
    st.integers(0, len(BATCHES)),
)
def test_every_acquired_offset_is_returned_or_acknowledged_once(
    ranges: list[tuple[int, int]], changes: list[tuple[int, int]], length: int
) -> None:
    data = bytearray(BATCHES)
    for place, value in changes:
        data[place] = value
    wanted: list[int] = []
    for first, last in sorted(ranges):
        if first <= last and (not wanted or first > wanted[-1]):
            wanted += range(first, last + 1)
    found: list[int] = []
    for offsets, acks, _error in parts(bytes(data[:length]), *ranges):
        found += offsets
        for ack in acks:
            found += range(ack.first_offset, ack.last_offset + 1)
    assert sorted(found) == wanted
