"""Reading and building v2 batches, against two other implementations."""

from __future__ import annotations

import contextlib

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings, strategies as st
from kafka.record.default_records import (
    DefaultRecordBatch as KafkaPythonBatch,
    DefaultRecordBatchBuilder as KafkaPythonBuilder,
)

from barnabas.record.batch import HEADER_SIZE, batches, check_crc, read_header, set_crc
from barnabas.record.builder import BatchBuilder, build_batch, record_size_max
from barnabas.record.reader import layouts, read_batches, records
from barnabas.record.record import CorruptBatchError, Record, read_varint, write_varint

KEYS = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3)
FIELDS = st.tuples(st.integers(0, 2**50), KEYS, KEYS, HEADERS)


def built(**options: int) -> bytearray:
    builder = BatchBuilder(**options)  # type: ignore[arg-type]
    for index in range(20):
        builder.append(1000 - index, b"key%d" % index, None, [("h", None), ("é", b"x")])
    return builder.build()


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_varints_are_decoded_again(value: int) -> None:
    output = bytearray(b"x")
    write_varint(output, value)
    assert read_varint(output, 1) == (value, len(output))


def test_a_varint_of_eleven_bytes_is_corrupt() -> None:
    with pytest.raises(CorruptBatchError):
        read_varint(b"\xff" * 10 + b"\x01", 0)


@pytest.mark.parametrize("compression", range(5))
@settings(max_examples=30)
@given(rows=st.lists(FIELDS, min_size=1, max_size=10))
def test_built_batches_are_read_by_our_reader_and_by_others(
    compression: int, rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]]
) -> None:
    builder = BatchBuilder(base_offset=90, compression=compression)
    for timestamp, key, value, headers in rows:
        builder.append(timestamp, key, value, headers)
    raw = bytes(builder.build())
    expected = [(90 + i, *row) for i, row in enumerate(rows)]
    ours = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records(raw)]
    assert ours == expected
    # For the other three compression types, kafka-python needs libraries that are not installed.
    others = (DefaultRecordBatch, KafkaPythonBatch) if compression < 2 else (DefaultRecordBatch,)
    for other in others:
        batch = other(raw)
        assert batch.validate_crc()
        theirs = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
        assert theirs == expected


def test_a_foreign_batch_with_producer_state_is_read() -> None:
    builder = KafkaPythonBuilder(2, 1, True, 9, 3, 5, 1 << 16)
    builder.append(0, 7, b"k", b"v", [("a", b"b")])
    builder.append(1, 8, None, None, [])
    raw = bytes(builder.build())
    header = read_header(raw)
    assert (header.producer_id, header.last_sequence, header.is_transactional) == (9, 6, True)
    assert [(r.key, r.value) for r in records(raw)] == [(b"k", b"v"), (None, None)]


def test_every_header_field_is_written() -> None:
    builder = BatchBuilder(
        base_offset=5, producer_id=77, producer_epoch=2, base_sequence=11, transactional=True,
        control=True, leader_epoch=4,
    )  # fmt: skip
    builder.append(50, b"k", b"v")
    builder.append(40, b"k", b"v")
    raw = builder.build()
    header = read_header(raw)
    assert check_crc(raw, 0, header)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (5, 6, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 2, 11)
    assert (header.base_timestamp, header.max_timestamp) == (50, 50)
    assert header.is_transactional
    assert header.is_control
    assert header.record_count == 2


def test_log_append_time_is_the_time_of_every_record() -> None:
    raw = built(timestamp_type=1, log_append_time_ms=4242)
    assert {(r.timestamp, r.timestamp_type) for r in records(raw)} == {(4242, 1)}


def test_a_delete_horizon_keeps_the_records_times() -> None:
    raw = built(delete_horizon=99999)
    assert read_header(raw).delete_horizon == 99999
    assert records(raw)[3].timestamp == 997


def test_a_full_batch_accepts_no_record_except_the_first() -> None:
    builder = BatchBuilder(max_bytes=300)
    assert builder.append(1, None, b"x" * 1000) == 0
    assert builder.append(1, None, b"y") is None
    builder = BatchBuilder(max_bytes=300)
    while builder.append(1, b"k", b"v" * 10) is not None:
        pass
    assert builder.record_count > 2
    assert len(builder.build()) == builder.estimated_size <= 300


@given(row=FIELDS)
def test_the_size_bound_of_a_record_holds(
    row: tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]],
) -> None:
    builder = BatchBuilder()
    builder.append(*row)
    assert builder.estimated_size - HEADER_SIZE <= record_size_max(*row[1:])


def test_gaps_between_offsets_are_kept() -> None:
    kept = [r for r in records(built(base_offset=100)) if r.offset % 3 == 0]
    raw = build_batch(kept, BatchBuilder(compression=4))
    assert records(raw) == kept
    assert read_header(raw).base_offset == 102
    with pytest.raises(ValueError, match="is not above"):
        build_batch([kept[1], kept[0]])


def test_several_batches_are_read_without_a_truncated_last_one() -> None:
    raw = bytes(built(base_offset=0) + built(base_offset=20, compression=3))
    read = list(read_batches(raw + raw[:200]))
    assert [header.base_offset for header, _ in read] == [0, 20]
    assert [r.offset for _, rs in read for r in rs] == list(range(40))


def test_a_truncated_batch_is_corrupt() -> None:
    with pytest.raises(CorruptBatchError):
        records(built()[:-1])


@pytest.mark.parametrize("count", [-1, 19, 21, 2**31 - 1])
def test_a_wrong_record_count_is_corrupt(count: int) -> None:
    raw = built()
    raw[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatchError):
        records(raw)


def test_a_forged_header_count_is_corrupt() -> None:
    body = bytearray(b"\x00\x00\x00\x01\x01")
    write_varint(body, 2**31 - 1)
    payload = bytearray()
    write_varint(payload, len(body))
    raw = built()[:HEADER_SIZE] + payload + body
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    raw[57:61] = (1).to_bytes(4, "big")
    set_crc(raw, 0, len(raw))
    with pytest.raises(CorruptBatchError, match="header count"):
        records(raw)


@given(payload=st.binary(max_size=200), count=st.integers(-5, 2**31))
def test_hostile_payloads_raise_only_corrupt_batch_errors(payload: bytes, count: int) -> None:
    with contextlib.suppress(CorruptBatchError):
        list(layouts(payload, count))


@settings(max_examples=300)
@given(position=st.integers(0, 10**6), byte=st.integers(0, 255), compression=st.integers(0, 4))
def test_a_changed_byte_raises_only_corrupt_batch_errors(
    position: int, byte: int, compression: int
) -> None:
    raw = built(compression=compression)
    raw[position % len(raw)] = byte
    try:
        for start, _ in batches(raw):
            records(raw, start)
    except CorruptBatchError:
        pass


def test_a_timestamp_out_of_range_is_corrupt() -> None:
    raw = build_batch([Record(0, 5, 0, None, None), Record(1, 6, 0, None, None)])
    raw[27:35] = (2**63 - 1).to_bytes(8, "big")
    with pytest.raises(CorruptBatchError, match="overflows"):
        records(raw)


def test_all_records_at_once_make_the_batch_of_single_appends() -> None:
    """The sizes have varints of one to three bytes, and numbers around the table of varints."""
    sizes = (0, 1, 63, 64, 500, 511, 512, 513, 8_191, 8_192, 9_000)
    records: list[tuple[bytes, bytes | None]] = [
        (b"k" * key, None if value is None else b"v" * value)
        for key in sizes
        for value in (None, *sizes)
    ]
    records += [(b"", None)] * 600
    single, together = BatchBuilder(producer_id=5), BatchBuilder(producer_id=5)
    for key, value in records:
        single.append(1_700_000_000_000, key, value)
    together.append_all(1_700_000_000_000, records)
    assert together.build() == single.build()
