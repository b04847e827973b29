"""The check of a producer's records agrees with a reader of all records, for each form of batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.record import producer_records
from barnabas.record.batch import read_header
from barnabas.record.builder import BatchBuilder
from barnabas.record.columns import record_slices
from barnabas.record.producer_records import (
    AT_ONCE_BYTES,
    AT_ONCE_RECORDS,
    HEADERS_MAX,
    SLICE_RECORDS,
    bounded_slices,
    largest_timestamp,
)
from barnabas.record.record import CorruptBatchError, varint
from producer_batches import ACCEPTED, GARBAGE, STRICTLY_REFUSED, Payload, packed, record

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST = 1_700_000_000_000
REFUSED = {**GARBAGE, **STRICTLY_REFUSED}


def built(deltas: Sequence[int], sizes: Sequence[int], headers: int = 0) -> memoryview:
    """Return a batch with these timestamps, and values of these sizes in turn."""
    builder = BatchBuilder()
    for index, delta in enumerate(deltas):
        value = bytes(sizes[index % len(sizes)])
        builder.append(FIRST + delta, None, value, [("", None)] * headers)
    return memoryview(builder.build())


def checked(batch: memoryview) -> int | None:
    return largest_timestamp(batch, read_header(batch))


@pytest.mark.parametrize(
    "count", [1, 2, 8, 16, 63, 64, 65, 148, 500, 600, 1001, 8192, 8193, AT_ONCE_RECORDS]
)
@pytest.mark.parametrize("sizes", [[5], [100], [5, 6], [100, 90, 300]])
def test_the_largest_timestamp_of_well_formed_records_is_found(
    count: int, sizes: list[int]
) -> None:
    for deltas in (range(count), range(count, 0, -1), [each // 100 for each in range(count)]):
        for _ in range(3):
            assert checked(built(deltas, sizes)) == FIRST + max(deltas)


def test_batches_of_one_shape_may_have_other_keys_values_and_timestamps() -> None:
    for key, value, delta in ((b"a", b"bc", 0), (b"\0", b"\xff\0", 7), (b"d", b"ef", 63)) * 2:
        builder = BatchBuilder()
        for index in range(100):
            builder.append(FIRST + (delta if index else 0), key, value)
        assert checked(memoryview(builder.build())) == FIRST + delta


def test_batches_of_one_size_may_have_other_lengths_of_keys() -> None:
    for key, value in ((b"", b"abcd"), (b"ab", b"cd"), (None, b"abcd")) * 3:
        builder = BatchBuilder()
        for index in range(100):
            builder.append(FIRST + index // 50, key, value)
        assert checked(memoryview(builder.build())) == FIRST + 1


@pytest.mark.parametrize("deltas", [[0, -5] * 400, [0, 10_000] * 400, [0, *[-3] * 700]])
def test_timestamps_before_the_first_or_long_after_it_are_compared(deltas: list[int]) -> None:
    assert checked(built(deltas, [50])) == FIRST + max(deltas)


@pytest.mark.parametrize("kind", REFUSED)
def test_malformed_records_are_refused_alone_and_after_a_run(kind: str) -> None:
    payload = REFUSED[kind]
    run = b"".join(record(index, bytes(20)) for index in range(600))
    for content, count in (payload, (run + payload.content, 600 + payload.count)):
        batch = memoryview(packed(Payload(content, count), first=FIRST))
        assert checked(batch) is None


@pytest.mark.parametrize("kind", ACCEPTED)
def test_unusual_records_are_read_slice_by_slice(kind: str) -> None:
    payload = ACCEPTED[kind]
    batch = packed(payload, first=FIRST)
    header = read_header(batch)
    slices = list(record_slices(batch, header, bounded_slices(batch, header)))
    assert [each.offset for part in slices for each in part] == list(range(payload.count))
    largest = checked(memoryview(batch))
    assert largest is None or largest == max(each.timestamp for part in slices for each in part)


@pytest.mark.parametrize("count", [120, 700, 1_200])
@pytest.mark.parametrize("position", range(12))
def test_no_changed_frame_byte_in_a_run_is_overlooked(position: int, count: int) -> None:
    """The strict reader of Python code decides about each change."""
    size = len(record(100, bytes(20)))
    # Up to 1,000 records, the check then knows the shape.
    for _ in range(3):
        assert checked(built([0] * count, [20])) == FIRST
    start = 61 + sum(len(record(index, bytes(20))) for index in range(100))
    for value in (0, 1, 2, 0x7F, 0x80, 0xFF):
        batch = bytearray(built([0] * count, [20]))
        batch[start + position % size] = value
        header = read_header(batch)
        found = checked(memoryview(batch))
        if found is not None:
            slices = record_slices(batch, header)
            times = [(each.offset, each.timestamp) for part in slices for each in part]
            assert [offset for offset, _ in times] == list(range(count))
            assert max(at for _, at in times) == found


def test_many_records_are_left_for_several_turns() -> None:
    assert checked(built([0] * (AT_ONCE_RECORDS + 1), [1])) is None


def test_large_batches_are_cut_into_slices_of_bounded_size() -> None:
    batch = built([0] * 3000, [10, 9000, 40, 200, 70_000])
    header = read_header(batch)
    sizes = list(bounded_slices(batch, header))
    parts = list(record_slices(batch, header, sizes))
    assert sum(sizes) == sum(map(len, parts)) == 3000
    assert max(sizes) <= SLICE_RECORDS
    for part in parts:
        assert sum(len(each.value) for each in part[:-1]) <= AT_ONCE_BYTES


def test_large_batches_with_headers_are_left_for_several_turns() -> None:
    assert checked(built([0] * 1000, [100, 101])) == FIRST
    assert checked(built([0] * 1000, [100, 101], headers=1)) is None


@pytest.mark.parametrize(("count", "is_refused"), [(HEADERS_MAX, False), (HEADERS_MAX + 1, True)])
def test_the_number_of_headers_of_a_record_is_limited(count: int, is_refused: bool) -> None:
    wide = record(headers=varint(count) + b"\0\1" * count)
    batch = packed(Payload(wide + record(1, bytes(AT_ONCE_BYTES)), 2), first=FIRST)
    header = read_header(batch)
    if is_refused:
        with pytest.raises(CorruptBatchError, match="headers"):
            list(bounded_slices(batch, header))
    else:
        assert sum(bounded_slices(batch, header)) == 2


@pytest.mark.parametrize("kind", REFUSED)
def test_malformed_records_end_the_slices_of_a_large_batch(kind: str) -> None:
    payload = REFUSED[kind]
    large = b"".join(record(index, bytes(900)) for index in range(100))
    batch = packed(Payload(large + payload.content, 100 + payload.count), first=FIRST)
    header = read_header(batch)
    assert len(batch) > AT_ONCE_BYTES
    try:
        slices = list(record_slices(batch, header, bounded_slices(batch, header)))
    except CorruptBatchError:
        return
    # The caller compares the offsets.
    offsets = [each.offset for part in slices for each in part]
    assert offsets != list(range(header.record_count))


def test_the_table_of_sizes_has_the_size_of_each_short_record() -> None:
    table = producer_records._record_sizes()
    for size in (0, 1, 63, 64, 500, 8191):
        length = varint(size) + b"\0"
        assert table[length[0]][length[1]] == len(varint(size)) + size
    for size in (-1, -64, -65, 8192, 1 << 20):
        length = varint(size) + b"\0"
        assert table[length[0]][length[1]] is None
