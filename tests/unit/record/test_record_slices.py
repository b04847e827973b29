"""Slices contain all records of a batch, a limited number at a time."""

from __future__ import annotations

from itertools import repeat

import pytest

from barnabas.record import columns
from barnabas.record.batch import HEADER_SIZE, BatchHeader, read_header
from barnabas.record.builder import BatchBuilder
from barnabas.record.columns import batch_records, record_slices, uncompressed
from barnabas.record.record import CorruptBatchError, write_varint

MANY = 2 * columns.RECORDS_PER_SLICE + 7


def batch(count: int, compression: int = 0) -> bytearray:
    builder = BatchBuilder(base_offset=50, compression=compression)
    for index in range(count):
        builder.append(index, b"k", b"v", [("zz", None)] if index == count - 1 else ())
    return builder.build()


def with_records(records: bytes, count: int) -> tuple[bytearray, BatchHeader]:
    whole = batch(1)[:HEADER_SIZE] + records
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    whole[57:61] = count.to_bytes(4, "big")
    return whole, read_header(whole)


@pytest.mark.parametrize("compression", range(5))
def test_slices_contain_all_records_in_order(compression: int) -> None:
    whole = batch(MANY, compression)
    header = read_header(whole)
    parts = list(record_slices(uncompressed(whole, 0, header), header))
    assert [len(part) for part in parts] == [500, 500, 7]
    assert [record.offset for part in parts for record in part] == list(range(50, 50 + MANY))


def test_the_caller_chooses_the_size_of_a_slice() -> None:
    whole = batch(250)
    parts = list(record_slices(whole, read_header(whole), repeat(100)))
    assert [len(part) for part in parts] == [100, 100, 50]


@pytest.mark.parametrize("compression", [0, 1])
def test_records_that_the_compiled_reader_rejects_are_returned_once_in_slices(
    compression: int,
) -> None:
    # The compiled reader does not read header keys that are not UTF-8.
    stored = batch(MANY, compression)
    header = read_header(stored)
    whole = bytearray(uncompressed(stored, 0, header))
    last = whole.rindex(b"zz")
    whole[last : last + 2] = b"\xff\xff"
    parts = list(record_slices(whole, header))
    assert max(map(len, parts)) <= columns.RECORDS_PER_SLICE
    assert [record.offset for part in parts for record in part] == list(range(50, 50 + MANY))


def number(value: int) -> bytes:
    output = bytearray()
    write_varint(output, value)
    return bytes(output)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(b"\xff" * 11 + bytes(20), id="number-of-eleven-bytes"),
        pytest.param(b"\x30\0\0\0" + number(2**63 - 1) + bytes(10), id="key-of-all-bytes"),
        pytest.param(b"\x30\0\0\0" + number(2**63 - 90) + bytes(10), id="key-that-wraps-around"),
        pytest.param(b"\x0c\0\0\0\x01\x01" + number(2**40), id="headers-that-are-not-there"),
        pytest.param(bytes(range(200)), id="garbage"),
        pytest.param(bytes(300), id="zeros"),
    ],
)
def test_malformed_records_are_a_corrupt_batch(record: bytes) -> None:
    whole, header = with_records(record, 1)
    with pytest.raises(CorruptBatchError):
        list(record_slices(whole, header))
    with pytest.raises(CorruptBatchError):
        batch_records(whole, 0, header)


@pytest.mark.parametrize("compression", range(5))
def test_a_count_beyond_the_bytes_is_refused_before_any_record_is_read(compression: int) -> None:
    whole = batch(3, compression)
    whole[57:61] = (20_000_000).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError, match="20000000 records do not fit"):
        batch_records(whole, 0, read_header(whole))
