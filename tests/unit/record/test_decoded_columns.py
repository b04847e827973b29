"""Column decoding returns the same records as the reader for all batches."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings, strategies as st

from barnabas.record import decoded_columns
from barnabas.record.batch import ControlType, encode_control_key
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import NONE, ZSTD
from barnabas.record.decoded_columns import DecodedRecords, decode_record_set, upgraded
from barnabas.record.format_conversion import down_convert
from barnabas.record.reader import read_batches
from barnabas.record.record import CorruptBatchError

Row = tuple[int, int, int, bytes | None, bytes | None]


def rows_of(decoded: DecodedRecords) -> list[Row]:
    def part(start: int, size: int) -> bytes | None:
        return None if size < 0 else decoded.buffer[start : start + size]

    return [
        (offset, timestamp, kind, part(ks, kn), part(vs, vn))
        for offset, timestamp, kind, ks, kn, vs, vn in zip(
            decoded.offsets.tolist(),
            decoded.timestamps.tolist(),
            decoded.timestamp_types.tolist(),
            decoded.key_starts.tolist(),
            decoded.key_sizes.tolist(),
            decoded.value_starts.tolist(),
            decoded.value_sizes.tolist(),
            strict=True,
        )
    ]


def decoded(data: bytes, aborted: list[tuple[int, int]] | None = None) -> list[Row]:
    return [row for part in decode_record_set(data, aborted or []) for row in rows_of(part)]


def read(data: bytes) -> list[Row]:
    return [tuple(r[:5]) for _, records in read_batches(data) for r in records]  # type: ignore[misc]


FIELDS = st.tuples(
    st.integers(0, 2**45), st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=300)
)


@settings(max_examples=60)
@given(
    batches=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 1), st.lists(FIELDS, min_size=1, max_size=8)),
        min_size=1,
        max_size=4,
    )
)
def test_columns_equal_the_records_of_the_reader(
    batches: list[tuple[int, int, list[tuple[int, bytes | None, bytes | None]]]],
) -> None:
    data, offset = b"", 7
    for compression, kind, rows in batches:
        builder = BatchBuilder(
            base_offset=offset, compression=compression, timestamp_type=kind, log_append_time_ms=99
        )
        for row in rows:
            builder.append(*row)
        data += builder.build()
        offset += len(rows)
    assert decoded(data) == read(data)


@pytest.mark.parametrize("size", [0, 10, 55, 60, 100, 5000, 20000])
def test_records_of_equal_size_are_decoded_exactly(size: int) -> None:
    builder = BatchBuilder()
    for index in range(3000):
        value = bytes(size) if index != 1500 else bytes(size + 1)
        builder.append(1000 + index * 3, b"%d" % index, value)
    data = bytes(builder.build())
    assert decoded(data) == read(data)


@pytest.mark.parametrize("index", [63, 66, 67, 191, 192, 447, 448, 8_200, 8_999])
def test_a_record_of_another_size_ends_a_run_wherever_it_is(index: int) -> None:
    builder = BatchBuilder()
    for number in range(9_000):
        builder.append(1000, None, bytes(99 if number == index else 100))
    data = bytes(builder.build())
    assert decoded(data) == read(data)


def v2(base: int, count: int = 3, **options: object) -> bytes:
    builder = BatchBuilder(base_offset=base, **options)  # type: ignore[arg-type]
    for index in range(count):
        builder.append(base + index, b"k", b"v%d" % index)
    return bytes(builder.build())


def marker(base: int, producer_id: int, kind: ControlType) -> bytes:
    builder = BatchBuilder(
        base_offset=base, producer_id=producer_id, control=True, transactional=True
    )
    builder.append(1, encode_control_key(kind), b"\x00" * 6)
    return bytes(builder.build())


def test_control_records_and_aborted_transactions_are_omitted() -> None:
    data = (
        v2(0, producer_id=1, transactional=True)
        + v2(3, producer_id=2, transactional=True)
        + marker(6, 1, ControlType.ABORT)
        + v2(7, producer_id=1, transactional=True)
        + marker(10, 2, ControlType.COMMIT)
        + marker(11, 1, ControlType.COMMIT)
        + v2(12)
    )
    assert [r[0] for r in decoded(data, [(1, 0)])] == [3, 4, 5, 7, 8, 9, 12, 13, 14]
    assert len(decoded(data)) == 12


def test_old_formats_are_read_at_their_offsets() -> None:
    data = down_convert(v2(40, compression=1), 0) + down_convert(v2(50), 1) + v2(60)
    assert [r[0] for r in decoded(upgraded(data))] == [40, 41, 42, 50, 51, 52, 60, 61, 62]
    assert upgraded(v2(0)) == v2(0)


def test_a_range_may_begin_and_end_within_a_batch() -> None:
    data = v2(0, 10) + v2(10, 10)
    parts = [rows_of(part.between(5, 12)) for part in decode_record_set(data)]
    assert [row[0] for rows in parts for row in rows] == list(range(5, 12))


@settings(max_examples=500)
@given(position=st.integers(0, 10**6), byte=st.integers(0, 255), compression=st.integers(0, 4))
def test_a_changed_byte_raises_only_corrupt_batch_errors(
    position: int, byte: int, compression: int
) -> None:
    raw = bytearray(v2(3, 100, compression=compression))
    raw[position % len(raw)] = byte
    with contextlib.suppress(CorruptBatchError):
        for part in decode_record_set(bytes(raw)):
            assert ((part.key_starts >= 0) & (part.header_starts <= len(part.buffer))).all()
            rows_of(part)


@pytest.mark.parametrize("compression", [NONE, ZSTD])
def test_batches_of_very_many_records_are_decoded_in_parts(
    compression: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoded_columns, "DECODED_RECORDS_MAX", 1_000)
    data = b""
    for base_offset, count in ((0, 5_500), (5_500, 3), (5_503, 2_000)):
        builder = BatchBuilder(base_offset=base_offset, compression=compression)
        for number in range(count):
            builder.append(number, None, bytes(number % 7))
        data += bytes(builder.build())
    parts = list(decode_record_set(data))
    # A run of equally sized records may exceed the limit.
    assert max(len(part.offsets) for part in parts) <= 1_000 + 1_024 + 64
    assert len(parts) >= 4
    assert [offset for part in parts for offset in part.offsets] == list(range(7_503))
    assert [size for part in parts for size in part.value_sizes][:8] == [0, 1, 2, 3, 4, 5, 6, 0]


def test_a_wrong_count_is_found_in_a_batch_that_is_decoded_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoded_columns, "DECODED_RECORDS_MAX", 1_000)
    builder = BatchBuilder()
    for _ in range(5_000):
        builder.append(0, None, b"v")
    data = builder.build()
    for claimed in (4_999, 5_001, 10):
        data[57:61] = claimed.to_bytes(4, "big")
        with pytest.raises(CorruptBatchError, match="the count in its header"):
            list(decode_record_set(bytes(data)))
