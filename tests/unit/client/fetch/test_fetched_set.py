"""Taking records from fetched sets, and giving records back."""

from __future__ import annotations

import tracemalloc

import pytest

from barnabas.client.errors import CorruptRecordsError
from barnabas.client.fetch.fetch_buffer import FetchedSet
from barnabas.client.fetch.fetched_batch import DECODED_RECORDS_MAX
from barnabas.client.fetch.record_set import (
    RecordSet,
    decode_record_set,
    iter_record_set,
    scan_records,
)
from barnabas.record.batch import ControlType, encode_control_key
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import ZSTD
from barnabas.record.format_conversion import down_convert


def batch(base_offset: int, count: int, **options: int | bool) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=base_offset, **options)  # type: ignore[arg-type]
    for _ in range(count):
        builder.append(0, None, b"v")
    return bytes(builder.build())


def marker(base_offset: int, producer_id: int, kind: ControlType) -> bytes:
    builder = BatchBuilder(
        base_offset=base_offset, producer_id=producer_id, transactional=True, control=True
    )
    builder.append(0, encode_control_key(kind), b"\0" * 6)
    return bytes(builder.build())


def fetched(
    data: bytes,
    first: int = 0,
    aborted: tuple[tuple[int, int], ...] = (),
    end: int | None = None,
    epoch_before: int = -1,
) -> FetchedSet:
    """A set of these batches that has begun; CRCs are not checked."""
    scan = scan_records(data, check_crcs=False)
    end = scan.next_offset if end is None else end
    record_set = RecordSet("t", 0, first, end, data, 99, 0, aborted, scan.batches)
    found = FetchedSet(record_set, epoch_before)
    found.begin(lambda _error: None)
    return found


def offsets(found: FetchedSet, limit: int) -> list[int]:
    return [record.offset for piece in found.take(limit) for record in piece.records]


def test_the_position_moves_with_the_taken_records() -> None:
    found = fetched(batch(0, 3) + batch(3, 4))
    assert offsets(found, 2) == [0, 1]
    assert (found.position, found.leader_epoch, found.is_taken) == (2, 0, False)
    assert offsets(found, 3) == [2, 3, 4]
    assert (found.position, found.leader_epoch) == (5, 3)
    assert offsets(found, 100) == [5, 6]
    assert (found.position, found.is_taken) == (7, True)


def test_counting_records_decodes_nothing() -> None:
    data = batch(0, 3, compression=ZSTD)
    broken = bytearray(data)
    broken[70:] = bytes(len(data) - 70)
    found = fetched(bytes(broken))
    (piece,) = found.take(2)
    assert (piece.start, piece.stop, found.position) == (0, 2, 2)


def test_records_that_are_given_back_are_taken_again() -> None:
    found = fetched(batch(0, 3) + batch(3, 4), epoch_before=17)
    found.take(100)
    found.give_back(5)
    assert (found.position, found.leader_epoch, found.is_taken) == (2, 0, False)
    assert offsets(found, 2) == [2, 3]
    found.give_back(4)
    assert (found.position, found.leader_epoch) == (0, 17)
    assert offsets(found, 100) == list(range(7))


def test_records_before_the_position_are_skipped() -> None:
    found = fetched(batch(0, 5) + batch(5, 2), first=3)
    assert offsets(found, 1) == [3]
    assert offsets(found, 100) == [4, 5, 6]


def test_gaps_of_compaction_are_skipped() -> None:
    # Records 0 and 1 of a batch that once went on to 9.
    builder = BatchBuilder(base_offset=0)
    for _ in range(2):
        builder.append(0, None, b"v")
    data = bytearray(builder.build())
    data[23:27] = (9).to_bytes(4, "big")
    found = fetched(bytes(data), end=10)
    assert offsets(found, 1) == [0]
    assert found.position == 1
    assert offsets(found, 100) == [1]
    assert (found.position, found.is_taken) == (10, True)


def test_aborted_transactions_and_markers_move_the_position_only() -> None:
    data = (
        batch(0, 2, producer_id=5, transactional=True)
        + batch(2, 2, producer_id=6, transactional=True)
        + marker(4, 5, ControlType.ABORT)
        + marker(5, 6, ControlType.COMMIT)
    )
    found = fetched(data, aborted=((5, 0),))
    assert offsets(found, 100) == [2, 3]
    assert (found.position, found.is_taken) == (6, True)
    nothing = fetched(data[: len(batch(0, 2, producer_id=5, transactional=True))], 0, ((5, 0),))
    assert nothing.take(5) == []
    assert nothing.is_taken


def test_messages_of_old_formats_are_counted_by_decoding() -> None:
    data = bytes(down_convert(batch(0, 3), 1))
    found = fetched(data)
    assert offsets(found, 2) == [0, 1]
    assert offsets(found, 2) == [2]


def test_columns_are_the_same_whether_a_batch_is_taken_whole_or_in_parts() -> None:
    builder = BatchBuilder(base_offset=0)
    for number in range(6):
        builder.append(0, None if number == 3 else b"k%d" % number, b"v%d" % number)
    data = bytes(builder.build())
    wanted = (
        list(range(6)),
        [b"k0", b"k1", b"k2", None, b"k4", b"k5"],
        [b"v%d" % number for number in range(6)],
    )
    for limit in (6, 4, 1):
        found = fetched(data)
        columns: tuple[list[int], list[bytes | None], list[bytes | None]] = ([], [], [])
        while pieces := found.take(limit):
            for piece in pieces:
                piece.append_to(*columns)
        assert columns == wanted


def test_records_with_a_header_name_that_is_not_utf_8_are_read() -> None:
    builder = BatchBuilder(base_offset=0)
    builder.append(0, b"k0", b"v0")
    builder.append(0, b"k1", b"v1", [("name", b"x")])
    data = bytes(builder.build()).replace(b"name", b"na\xffe")
    found = fetched(data, end=2)
    columns: tuple[list[int], list[bytes | None], list[bytes | None]] = ([], [], [])
    for piece in found.take(2):
        piece.append_to(*columns)
    assert columns == ([0, 1], [b"k0", b"k1"], [b"v0", b"v1"])


MANY = 20 * DECODED_RECORDS_MAX


@pytest.mark.parametrize("first", [0, 1_000])
def test_a_large_batch_is_decoded_in_parts(first: int) -> None:
    found = fetched(batch(0, MANY, compression=ZSTD), first)
    tracemalloc.start()
    seen = [offsets(found, 500)[0] for _ in range(4)]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == [first + each for each in (0, 500, 1000, 1500)]
    # All of the records take more than 20 MB.
    assert most < 8_000_000
    found.give_back(700)
    assert offsets(found, 2) == [first + 1300, first + 1301]
    pieces = found.take(MANY)
    assert [len(each.records) for each in pieces] == [MANY - first - 1302]
    assert (found.position, found.is_taken) == (MANY, True)


def test_a_part_of_a_large_batch_may_be_read_again() -> None:
    found = fetched(batch(0, MANY))
    pieces = [*found.take(10), *found.take(10)]
    for _ in range(2):
        for piece, start in zip(pieces, (0, 10), strict=True):
            assert [each.offset for each in piece.records] == list(range(start, start + 10))


def test_a_record_set_is_iterated_with_few_records_in_memory() -> None:
    records = fetched(batch(0, MANY, compression=ZSTD), 5).record_set
    tracemalloc.start()
    read = iter_record_set(records)
    assert [next(read).offset for _ in range(3)] == [5, 6, 7]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8_000_000
    small = fetched(batch(0, 3) + batch(3, 4, compression=ZSTD), 1).record_set
    assert list(iter_record_set(small)) == decode_record_set(small)


def test_a_record_offset_outside_its_batch_is_an_error() -> None:
    data = bytearray(batch(0, 3))
    data[23:27] = (9).to_bytes(4, "big")
    # The offset delta of the second record, as a zigzag varint.
    data[61 + 8 + 3] = 126
    found = fetched(bytes(data))
    found.take(2)
    with pytest.raises(CorruptRecordsError, match="outside"):
        _ = found.position
