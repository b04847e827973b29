"""The compiled reader returns the records of the Python reader, and its error for hostile bytes."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st

from barnabas.record.batch import batches, read_header
from barnabas.record.builder import BatchBuilder
from barnabas.record.columns import append_columns, batch_records, iter_records, uncompressed
from barnabas.record.format_conversion import down_convert
from barnabas.record.reader import records
from barnabas.record.record import CorruptBatchError, Record


def v2(compression: int, base: int = 50) -> bytes:
    builder = BatchBuilder(base_offset=base, compression=compression)
    for index in range(20):
        headers = [("h", b"x"), ("i", None)] if index % 2 else []
        builder.append(100 + index, None if index == 2 else b"k", b"v" * index, headers)
    return bytes(builder.build())


@pytest.mark.parametrize("compression", range(5))
def test_the_compiled_reader_returns_the_records_of_the_python_reader(compression: int) -> None:
    raw = v2(compression)
    rows = [
        (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, list(r.headers))
        for r in iter_records(raw)
    ]
    assert rows == [(*r[:5], list(r.headers)) for r in records(raw)]


@pytest.mark.parametrize("gap", [1, 3])
@pytest.mark.parametrize("compression", range(5))
def test_columns_equal_the_records_with_and_without_gaps(compression: int, gap: int) -> None:
    builder = BatchBuilder(base_offset=50, compression=compression)
    for index in range(10):
        key = None if index == 2 else b"k%d" % index
        builder.append_at(Record(50 + index * gap, 7, 0, key, b"v" * index, []))
    raw = v2(compression) + bytes(builder.build())
    offsets, keys, values = [1], [b"before"], [b""]
    for start, header in batches(raw):
        append_columns(uncompressed(raw, start, header), header, offsets, keys, values)
    expected = [*records(raw), *records(raw[read_header(raw).size :])]
    assert offsets == [1, *(record.offset for record in expected)]
    assert keys == [b"before", *(record.key for record in expected)]
    assert values == [b"", *(record.value for record in expected)]


def test_columns_of_records_with_invalid_header_keys_are_read() -> None:
    builder = BatchBuilder(base_offset=4)
    builder.append(1, None, b"first")
    builder.append(1, b"k", b"second", [("zz", b"x")])
    raw = bytes(builder.build()).replace(b"zz", b"\xff\xfe")
    offsets: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    append_columns(raw, read_header(raw), offsets, keys, values)
    assert (offsets, keys, values) == ([4, 5], [None, b"k"], [b"first", b"second"])


def test_every_format_is_read_without_control_batches() -> None:
    control = BatchBuilder(base_offset=90, control=True)
    control.append(1, b"\x00\x00\x00\x01", b"")
    raw = down_convert(v2(1, 0), 0) + down_convert(v2(0, 20), 1) + bytes(control.build())
    raw += v2(3, 100) + v2(0)[:30]
    assert [r.offset for r in iter_records(raw)] == [*range(40), *range(100, 120)]


def test_an_invalid_header_key_is_read_with_replacements() -> None:
    builder = BatchBuilder()
    builder.append(1, None, b"v", [("zz", b"x")])
    raw = bytes(builder.build()).replace(b"zz", b"\xff\xfe")
    assert [r.headers[0][0] for r in iter_records(raw)] == ["\ufffd\ufffd"]


@settings(max_examples=500)
@given(position=st.integers(0, 10**6), byte=st.integers(0, 255), compression=st.integers(0, 4))
def test_a_changed_byte_raises_only_corrupt_batch_errors(
    position: int, byte: int, compression: int
) -> None:
    raw = bytearray(v2(compression))
    raw[position % len(raw)] = byte
    with contextlib.suppress(CorruptBatchError):
        for start, header in batches(raw):
            batch_records(raw, start, header)


def test_the_compiled_reader_does_not_import_aiokafkas_client() -> None:
    program = (
        "import sys; from barnabas.record.compiled import CompiledReader; CompiledReader();"
        "assert 'aiokafka.client' not in sys.modules;"
        "import aiokafka; assert aiokafka.AIOKafkaConsumer and aiokafka.errors and aiokafka.record;"
        "from aiokafka import AIOKafkaProducer; assert 'aiokafka.client' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
