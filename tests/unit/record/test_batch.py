"""The v2 batch header is read, iterated and patched in place."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from barnabas.record.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    batches,
    check_crc,
    magic_of,
    read_header,
    set_max_timestamp,
    set_offset_and_epoch,
)
from barnabas.record.record import CorruptBatchError, UnsupportedMagicError


def foreign_batch(count: int = 3) -> bytearray:
    """Return a batch that aiokafka built."""
    builder = DefaultRecordBatchBuilder(2, 0, True, 77, 4, 12, 1 << 20)
    for index in range(count):
        builder.append(index, 1000 + index, b"key", b"value", [])
    return bytearray(builder.build())


def test_header_of_a_foreign_batch_is_read() -> None:
    raw = foreign_batch()
    header = read_header(raw)
    assert header.size == len(raw)
    assert (header.base_offset, header.last_offset, header.next_offset) == (0, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 4, 12)
    assert header.last_sequence == 14
    assert header.is_transactional
    assert not header.is_control
    assert header.compression == 0
    assert header.delete_horizon is None
    assert check_crc(raw, 0, header)


def test_sequence_wraps_after_its_maximum() -> None:
    header = BatchHeader(0, 60, -1, 2, 0, 0, 2, 0, 0, 5, 0, 0x7FFFFFFF, 3)
    assert header.last_sequence == 1


def test_batches_are_listed_without_a_truncated_last_one() -> None:
    one = bytes(foreign_batch())
    found = list(batches(one + one + one[:-1]))
    assert [position for position, _ in found] == [0, len(one)]
    assert [position for position, _ in batches(one + one[:20])] == [0]
    assert list(batches(b"")) == []


def test_offset_and_epoch_are_patched_without_touching_the_crc() -> None:
    raw = foreign_batch()
    set_offset_and_epoch(raw, 0, 123456789012, 9)
    header = read_header(raw)
    assert (header.base_offset, header.last_offset) == (123456789012, 123456789014)
    assert header.partition_leader_epoch == 9
    assert check_crc(raw, 0, header)


def test_log_append_time_is_patched_with_a_new_crc() -> None:
    raw = bytearray(10) + foreign_batch()
    set_max_timestamp(memoryview(raw), 10, LOG_APPEND_TIME, 5555)
    header = read_header(raw, 10)
    assert header.has_log_append_time
    assert header.max_timestamp == 5555
    assert check_crc(raw, 10, header)
    set_max_timestamp(raw, 10, 0, 1002)
    assert raw[10:] == foreign_batch()


def test_a_flipped_bit_fails_the_crc() -> None:
    raw = foreign_batch()
    raw[-1] ^= 1
    assert not check_crc(raw, 0, read_header(raw))
    assert not check_crc(raw[:-1], 0, read_header(raw))


def test_too_few_bytes_are_corrupt() -> None:
    with pytest.raises(CorruptBatchError):
        read_header(foreign_batch()[: HEADER_SIZE - 1])
    with pytest.raises(CorruptBatchError):
        magic_of(b"short")


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_that_no_batch_can_have_is_corrupt(length: int) -> None:
    raw = foreign_batch()
    raw[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatchError):
        read_header(raw)
    with pytest.raises(CorruptBatchError):
        list(batches(raw))
    with pytest.raises(CorruptBatchError):
        list(batches(raw[:30]))


def test_the_error_of_another_format_has_its_magic() -> None:
    raw = foreign_batch()
    raw[16] = 1
    with pytest.raises(UnsupportedMagicError) as caught:
        read_header(raw)
    assert caught.value.magic == 1
    assert magic_of(raw) == 1
