"""Compression: compatible with other implementations; decompression bombs are refused."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, strategies as st

from barnabas.record.compression import (
    CODES,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    _xxhash32,
    compress,
    decompress,
    decompressed_bytes_max,
    with_lz4_checksum,
)
from barnabas.record.record import CorruptBatchError

TEXT = b"the quick brown fox " * 20000
ALL = sorted(CODES.values())
REAL = ALL[1:]

OTHERS_DECODE = {
    GZIP: aiokafka_codec.gzip_decode,
    SNAPPY: aiokafka_codec.snappy_decode,
    LZ4: aiokafka_codec.lz4_decode,
    ZSTD: aiokafka_codec.zstd_decode,
}
OTHERS_ENCODE = {
    GZIP: aiokafka_codec.gzip_encode,
    SNAPPY: aiokafka_codec.snappy_encode,
    LZ4: aiokafka_codec.lz4_encode,
    ZSTD: aiokafka_codec.zstd_encode,
}


@pytest.mark.parametrize("code", ALL)
@given(data=st.binary(max_size=2000))
def test_compressed_data_is_decompressed_again(code: int, data: bytes) -> None:
    assert decompress(code, compress(code, data)) == data


@pytest.mark.parametrize("code", REAL)
def test_compressed_data_is_compatible_with_other_clients(code: int) -> None:
    assert OTHERS_DECODE[code](bytes(compress(code, TEXT))) == TEXT
    assert decompress(code, OTHERS_ENCODE[code](TEXT)) == TEXT
    assert decompress(code, memoryview(bytearray(OTHERS_ENCODE[code](TEXT)))) == TEXT


def test_raw_and_concatenated_snappy_are_read() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT
    assert decompress(SNAPPY, bytes(compress(SNAPPY, TEXT)) * 2) == TEXT * 2


def test_gzip_members_are_joined() -> None:
    assert decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


@pytest.mark.parametrize("level", [1, 3, 9])
@pytest.mark.parametrize("code", [GZIP, LZ4, ZSTD])
def test_all_levels_produce_valid_bytes(code: int, level: int) -> None:
    assert decompress(code, compress(code, TEXT, level)) == TEXT


def test_magic_0_lz4_frames_have_the_checksum_that_old_clients_expect() -> None:
    frame = bytes(compress(LZ4, TEXT))
    old = with_lz4_checksum(frame, covers_magic=True)
    assert old != frame
    theirs = aiokafka_codec.lz4_encode(TEXT)
    restored = with_lz4_checksum(with_lz4_checksum(theirs, covers_magic=True), covers_magic=False)
    assert restored == theirs
    with pytest.raises(CorruptBatchError):
        decompress(LZ4, old)
    assert decompress(LZ4, with_lz4_checksum(old, covers_magic=False)) == TEXT


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0x02CC5D05),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_the_hash_of_lz4_headers_is_xxhash(data: bytes, digest: int) -> None:
    assert _xxhash32(data) == digest


@pytest.mark.parametrize("code", REAL)
def test_a_decompression_bomb_is_limited(code: int) -> None:
    bomb = bytes(compress(code, bytes(32 << 20)))
    tracemalloc.start()
    with pytest.raises(CorruptBatchError):
        decompress(code, bomb, max_bytes=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert len(decompress(code, bomb, max_bytes=32 << 20)) == 32 << 20


def test_a_forged_snappy_length_allocates_nothing() -> None:
    with pytest.raises(CorruptBatchError):
        decompress(SNAPPY, b"\xff\xff\xff\xff\x0fabc")
    header = compress(SNAPPY, b"")
    for length in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00"):
        with pytest.raises(CorruptBatchError):
            decompress(SNAPPY, bytes(header) + length)


@pytest.mark.parametrize("code", REAL)
def test_truncated_data_is_corrupt(code: int) -> None:
    whole = bytes(compress(code, TEXT))
    for size in (0, 1, 5, len(whole) // 2, len(whole) - 1):
        if code == SNAPPY and size == 0:
            continue
        with pytest.raises(CorruptBatchError):
            decompress(code, whole[:size])


@pytest.mark.parametrize("code", range(1, 8))
@given(data=st.binary(max_size=300))
def test_hostile_bytes_raise_only_corrupt_batch_errors(code: int, data: bytes) -> None:
    with contextlib.suppress(CorruptBatchError):
        decompress(code, data, max_bytes=1 << 16)


@pytest.mark.parametrize("code", REAL)
def test_large_data_is_not_copied_on_the_heap(code: int) -> None:
    packed = bytes(compress(code, bytes(40 << 20)))
    tracemalloc.start()
    head = bytearray(b"head")
    made = decompress(code, packed, head=head)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(made) == 4 + (40 << 20)
    assert bytes(made[:6]) == b"head\0\0"
    assert peak < 24 << 20


def test_many_empty_gzip_members_are_not_copied_for_each() -> None:
    members = bytes(compress(GZIP, b"")) * 5000 + bytes(compress(GZIP, b"x"))
    tracemalloc.start()
    assert decompress(GZIP, members) == b"x"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 80_000


@pytest.mark.parametrize("code", REAL)
def test_the_bound_of_the_decompressed_size_holds(code: int) -> None:
    packed = compress(code, bytes(3 << 20))
    assert decompressed_bytes_max(code, len(packed)) >= 3 << 20
    assert decompressed_bytes_max(code, 1 << 40, 77) == 77
