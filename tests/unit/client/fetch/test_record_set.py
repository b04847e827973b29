"""Scanning fetched bytes by batch header."""

from __future__ import annotations

from barnabas.client.fetch.record_set import (
    RecordSet,
    examine_batches,
    scan_records,
    visible_batches,
)
from barnabas.record.batch import ControlType, encode_control_key, encode_end_marker
from barnabas.record.builder import BatchBuilder


def batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder(base_offset=base_offset)
    for number in range(count):
        builder.append(1000 + number, b"k", b"v%d" % number)
    return bytes(builder.build())


def test_the_next_offset_is_after_the_last_complete_batch() -> None:
    data = batch(10, 3) + batch(13, 2)
    scan = scan_records(data, check_crcs=True)
    assert (scan.next_offset, scan.length) == (15, len(data))
    first, second = scan.batches
    assert (first.start, first.base_offset, first.next_offset, first.record_count) == (0, 10, 13, 3)
    assert (second.start, second.end, second.record_count) == (first.end, len(data), 2)


def test_an_incomplete_batch_is_not_counted() -> None:
    first = batch(10, 3)
    scan = scan_records(first + batch(13, 2)[:-1], check_crcs=True)
    assert (scan.next_offset, scan.length, len(scan.batches)) == (13, len(first), 1)


def test_without_a_complete_batch_there_is_no_next_offset() -> None:
    assert scan_records(batch(0, 3)[:40], check_crcs=True) == (-1, 0, [], None)


def test_a_flipped_bit_is_found_only_if_crcs_are_checked() -> None:
    data = bytearray(batch(0, 3))
    data[-1] ^= 1
    assert scan_records(bytes(data), check_crcs=True) == (
        -1,
        0,
        [],
        (0, 3, "the CRC does not match"),
    )
    assert scan_records(bytes(data), check_crcs=False).next_offset == 3


def test_an_impossible_length_is_malformed() -> None:
    data = batch(0, 1)
    scan = scan_records(data[:8] + b"\x00\x00\x00\x01" + data[12:], check_crcs=False)
    assert scan.invalid == (0, 1, "invalid batch length 1")


def test_batches_before_an_invalid_batch_are_valid() -> None:
    broken = bytearray(batch(13, 2))
    broken[-1] ^= 1
    scan = scan_records(batch(10, 3) + bytes(broken) + batch(15, 1), check_crcs=True)
    assert (scan.next_offset, len(scan.batches)) == (13, 1)
    assert scan.invalid == (13, 15, "the CRC does not match")


def transactional(base_offset: int, producer_id: int) -> bytes:
    builder = BatchBuilder(
        base_offset=base_offset, producer_id=producer_id, producer_epoch=0, transactional=True
    )
    builder.append(1000, b"k", b"v")
    return bytes(builder.build())


def marker(base_offset: int, producer_id: int, kind: ControlType) -> bytes:
    builder = BatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    builder.append(1000, encode_control_key(kind), encode_end_marker(0))
    return bytes(builder.build())


def test_all_batches_are_examined_with_their_fate() -> None:
    """Producer 5 aborts and then commits; producer 6 commits, and its marker ends nothing else."""
    data = b"".join(
        (
            transactional(0, 5),
            transactional(1, 6),
            marker(2, 6, ControlType.COMMIT),
            transactional(3, 5),
            marker(4, 5, ControlType.ABORT),
            transactional(5, 5),
            batch(6, 1),
        )
    )
    scan = scan_records(data, check_crcs=True)
    records = RecordSet("t", 0, 0, 7, data, 7, 0, ((5, 0),), scan.batches)
    found = list(examine_batches(records))
    assert [each.is_aborted for each in found] == [
        True, False, False, True, False, False, False,
    ]  # fmt: skip
    headers = [each.header for each in found if each.header is not None]
    assert [each.is_control for each in headers] == [
        False, False, True, False, True, False, False,
    ]  # fmt: skip
    assert [each.base_offset for each in visible_batches(records)] == [1, 5, 6]
