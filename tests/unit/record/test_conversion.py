"""Message formats 0 and 1 are read, written and converted as by two other implementations."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.record.legacy_records import _LegacyRecordBatchBuilderPy
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings, strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from barnabas.record import format_conversion
from barnabas.record.batch import read_header
from barnabas.record.builder import BatchBuilder
from barnabas.record.format_conversion import down_conversion, down_convert, to_v2, up_conversion
from barnabas.record.legacy import (
    entries,
    messages,
    read_records,
    to_v2_at_offsets,
    write_message,
    write_message_set,
)
from barnabas.record.reader import records
from barnabas.record.record import (
    CorruptBatchError,
    Record,
    UnsupportedConversionError,
    UnsupportedMagicError,
)

if TYPE_CHECKING:
    from barnabas.waiting.steps import OffLoop, Steps

OLD = [(magic, compression) for magic in (0, 1) for compression in range(4)]
# For lz4 in magic 0, aiokafka writes the checksum of the format instead of that of old clients.
FOREIGN = [pair for pair in OLD if pair != (0, 3)]


def foreign_set(magic: int, compression: int) -> bytes:
    builder = _LegacyRecordBatchBuilderPy(magic, compression, 1 << 20)
    for index in range(5):
        builder.append(index, 100 + index, b"k%d" % index, None if index == 3 else b"v")
    return bytes(builder.build())


def expected(magic: int) -> list[tuple[int, bytes, bytes | None]]:
    return [(100 + i if magic else -1, b"k%d" % i, None if i == 3 else b"v") for i in range(5)]


@pytest.mark.parametrize(("magic", "compression"), FOREIGN)
def test_a_foreign_message_set_becomes_one_v2_batch(magic: int, compression: int) -> None:
    raw = to_v2(foreign_set(magic, compression))
    header = read_header(raw)
    assert (header.compression, header.record_count, header.base_offset) == (compression, 5, 0)
    assert [(r.timestamp, r.key, r.value) for r in records(raw)] == expected(magic)
    assert {magic for _, _, magic in entries(raw)} == {2}


def test_compression_and_append_time_of_the_result_can_be_set() -> None:
    raw = to_v2(foreign_set(1, 1), compression=4, log_append_time_ms=777)
    assert read_header(raw).compression == 4
    assert {r.timestamp for r in records(raw)} == {777}


def v2(compression: int, count: int = 5, base: int = 50) -> bytes:
    builder = BatchBuilder(base_offset=base, compression=compression)
    for index in range(count):
        builder.append(100 + index, b"k%d" % index, None if index == 3 else b"v", [("h", b"x")])
    return bytes(builder.build())


@pytest.mark.parametrize(("magic", "compression"), OLD)
def test_old_consumers_read_down_converted_records(magic: int, compression: int) -> None:
    raw = down_convert(v2(compression) + v2(compression, base=90), magic)
    offsets = [*range(50, 55), *range(90, 95)]
    ours = [(r.offset, r.timestamp, r.key, r.value) for r in read_records(raw)]
    assert ours == [(o, *w) for o, w in zip(offsets, expected(magic) * 2, strict=True)]
    assert {each for _, _, each in entries(raw)} == {magic}
    if (magic, compression) == (0, 3):
        return
    others = [MemoryRecords(raw)] + ([KafkaPythonRecords(raw)] if compression < 2 else [])
    for memory_records in others:
        theirs = []
        while memory_records.has_next():
            theirs += [(r.offset, r.key, r.value) for r in memory_records.next_batch()]
        assert theirs == [(o, k, v) for o, _, k, v in ours]


@pytest.mark.parametrize(("magic", "compression"), OLD)
def test_conversion_up_and_down_keeps_offsets(magic: int, compression: int) -> None:
    old = down_convert(v2(compression), magic)
    batches = [bytes(b) for b in to_v2_at_offsets(old, leader_epoch=3)]
    assert [r.offset for b in batches for r in records(b)] == list(range(50, 55))
    assert {read_header(b).partition_leader_epoch for b in batches} == {3}
    assert down_convert(b"".join(batches), magic) == old


def test_records_before_the_requested_offset_and_control_batches_are_omitted() -> None:
    control = BatchBuilder(base_offset=55, control=True)
    control.append(1, b"\x00\x00\x00\x01", b"")
    raw = down_convert(v2(0) + bytes(control.build()), 1, first_offset=53)
    assert [r.offset for r in read_records(raw)] == [53, 54]


def test_zstd_cannot_be_converted_down() -> None:
    with pytest.raises(UnsupportedConversionError):
        down_convert(v2(4), 1)


def test_magic_1_becomes_magic_0_and_magic_0_is_unchanged() -> None:
    old = down_convert(v2(1), 1)
    older = down_convert(old, 0)
    assert [r.offset for r in read_records(older)] == list(range(50, 55))
    assert down_convert(older, 1) == older


def test_the_append_time_of_a_wrapper_applies_to_all_messages() -> None:
    rows = [Record(i, 100 + i, 1, None, b"v") for i in range(3)]
    raw = write_message_set(1, rows, 2)
    assert {(r.timestamp, r.timestamp_type) for r in read_records(raw)} == {(102, 1)}
    (batch,) = to_v2_at_offsets(raw)
    assert {(r.timestamp, r.timestamp_type) for r in records(batch)} == {(102, 1)}


def test_a_wrong_crc_is_corrupt() -> None:
    raw = bytearray(foreign_set(1, 0))
    raw[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        to_v2(raw)


def test_a_wrapper_in_a_wrapper_is_corrupt() -> None:
    inner = write_message_set(1, [Record(0, 1, 0, None, b"v")], 1)
    value = next(messages(write_message_set(1, [Record(0, 1, 0, None, inner)], 1)))
    assert value.compression == 1
    from barnabas.record.compression import compress

    wrapper = Record(0, 1, 0, None, bytes(compress(1, inner)))
    with pytest.raises(CorruptBatchError):
        to_v2(write_message(1, 0, wrapper, 1))


def test_an_empty_set_and_a_newer_batch_are_refused() -> None:
    with pytest.raises(CorruptBatchError):
        to_v2(b"")
    with pytest.raises(UnsupportedMagicError):
        to_v2(v2(0))


@settings(max_examples=300)
@given(pair=st.sampled_from(OLD), position=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_changed_byte_raises_only_corrupt_batch_errors(
    pair: tuple[int, int], position: int, byte: int
) -> None:
    raw = bytearray(down_convert(v2(pair[1]), pair[0]))
    raw[position % len(raw)] = byte
    for work in (to_v2, lambda b: list(entries(b)), lambda b: list(to_v2_at_offsets(b))):
        with contextlib.suppress(CorruptBatchError):
            work(raw)


@given(data=st.binary(max_size=120), size=st.integers(0, 200), magic=st.sampled_from([0, 1, 2]))
def test_hostile_bytes_raise_only_corrupt_batch_errors(data: bytes, size: int, magic: int) -> None:
    raw = bytes(8) + size.to_bytes(4, "big") + bytes(4) + bytes([magic]) + data
    for work in (
        to_v2,
        lambda b: down_convert(b, 0),
        lambda b: list(read_records(b)),
        lambda b: [list(messages(b, check=False))],
    ):
        with contextlib.suppress(CorruptBatchError):
            work(raw)


@pytest.mark.parametrize("compression", [1, 2, 3])
def test_large_sets_are_decompressed_and_compressed_outside_the_event_loop(
    compression: int,
) -> None:
    value = bytes(3 << 20)
    old = write_message_set(1, [Record(0, 5, 0, b"k", value)], compression)
    off_loop: list[OffLoop] = []

    def run(steps: Steps) -> Any:
        result = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                return end.value
            result = None if step is None else step.work()
            if step is not None:
                off_loop.append(step)

    batch = run(up_conversion(old))
    assert [each.memory_bytes_max is not None for each in off_loop] == [True, False]
    assert records(batch)[0].value == value
    off_loop.clear()
    assert [each.value for each in read_records(run(down_conversion(batch, 1)))] == [value]
    assert [each.memory_bytes_max is not None for each in off_loop] == [True, False]


def test_a_batch_that_would_become_too_many_messages_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(format_conversion, "CONVERTED_BYTES_MAX", 10_000)
    small, large = BatchBuilder(compression=1), BatchBuilder(compression=1, base_offset=100)
    for _ in range(100):
        small.append(5, None, None)
    for _ in range(1000):
        large.append(5, None, None)
    assert len(list(read_records(down_convert(small.build(), 1)))) == 100
    with pytest.raises(CorruptBatchError, match="too large to be converted"):
        down_convert(large.build(), 1)


def test_a_conversion_ends_with_the_batch_that_exceeds_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(format_conversion, "CONVERTED_BYTES_MAX", 4_000)
    batches = bytearray()
    for number in range(5):
        builder = BatchBuilder(base_offset=60 * number)
        for _ in range(60):
            builder.append(5, None, None)
        batches += builder.build()
    found = [each.offset for each in read_records(down_convert(batches, 1))]
    assert found == list(range(120))
