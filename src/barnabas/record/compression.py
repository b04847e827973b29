"""The five compressions of record batches, as Java clients frame them, with bounded decompression.

Snappy is the "xerial" stream of blocks that Java writes (raw snappy is read too); lz4 is the frame
format with independent blocks (KIP-57), in whose magic 0 variant the header checksum is computed
over the wrong bytes; levels are those of KIP-390. Decompressing never makes more than a given
number of bytes, whatever the input claims.
"""

from __future__ import annotations

import zlib
from struct import Struct, error
from typing import TYPE_CHECKING

import cramjam

from barnabas.record.errors import CorruptBatchError, DecompressedTooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.record.batch import Buffer

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODES = {name: code for code, name in enumerate(NAMES)}

# Smallest, largest and default level per code (KIP-390); snappy has no levels.
LEVELS = {GZIP: (1, 9, 6), LZ4: (1, 17, 9), ZSTD: (-131072, 22, 3)}

# What one batch may become; a producer's batch is at most `max.request.size` before compression.
DECOMPRESSED_BYTES_MAX = 128 << 20

# First guess of the output's size: small, because a fresh bytearray is zeroed.
_GUESS_BYTES_MIN = 64 << 10
_GUESS_RATIO = 4

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 << 10
_BLOCK_LENGTH = Struct(">i")

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_FLAG = 0x08
_LZ4_DICTIONARY_FLAG = 0x01
_GZIP_WBITS = 31
_OVERFLOW = "whole buffer"


def compress(code: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compress `data` the way Java clients expect it.

    Args:
        code: compression code 0 to 4.
        data: the bytes of all records of a batch.
        level: a level in the range of `LEVELS`; None for Kafka's default.

    Returns:
        The compressed bytes, `data` itself for code 0.
    """
    if code == NONE:
        return data
    if code == GZIP:
        return zlib.compress(
            data, zlib.Z_DEFAULT_COMPRESSION if level is None else level, _GZIP_WBITS
        )
    if code == SNAPPY:
        return _compress_xerial(data)
    if code == LZ4:
        return _compress_lz4(data, level)
    if code == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=LEVELS[ZSTD][2] if level is None else level))
    raise ValueError(f"unknown compression code {code}")


def decompress(code: int, data: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Undo `compress`.

    Raises:
        CorruptBatchError: an unknown code, malformed bytes, or more than `max_bytes` of output.
    """
    if code == NONE:
        return data
    try:
        if code == GZIP:
            return _decompress_gzip(data, max_bytes)
        if code == SNAPPY:
            return _decompress_snappy(data, max_bytes)
        if code == LZ4:
            return _decompress_growing(cramjam.lz4.decompress_into, data, max_bytes)
        if code == ZSTD:
            return _decompress_growing(cramjam.zstd.decompress_into, data, max_bytes)
    except (cramjam.DecompressionError, zlib.error, error) as problem:
        raise CorruptBatchError(f"bytes are not valid {NAMES[code]}: {problem}") from None
    raise CorruptBatchError(f"unknown compression code {code}")


def _too_large(max_bytes: int) -> DecompressedTooLargeError:
    return DecompressedTooLargeError(f"records decompress to more than {max_bytes} bytes")


def _decompress_growing(
    decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, max_bytes: int
) -> bytes:
    """Decompress into a buffer, four times as large if it was too small, up to `max_bytes`.

    Neither format tells its size before it is decompressed; asking the library to allocate would
    trust the sender with our memory.
    """
    capacity = min(max_bytes, max(_GUESS_BYTES_MIN, len(data) * _GUESS_RATIO))
    while True:
        output = bytearray(capacity)
        try:
            size = decompress_into(data, output)
        except cramjam.DecompressionError as problem:
            if _OVERFLOW not in str(problem):
                raise
            if capacity >= max_bytes:
                raise _too_large(max_bytes) from None
            capacity = min(max_bytes, capacity * 4)
            continue
        with memoryview(output) as view:
            return bytes(view[:size])


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    """All gzip members of `data`, one after the other."""
    parts: list[bytes] = []
    room = max_bytes
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        # One byte more than the room, so that "exactly full" and "too large" differ.
        part = member.decompress(rest, room + 1)
        room -= len(part)
        if room < 0:
            raise _too_large(max_bytes)
        if not member.eof:
            raise CorruptBatchError("gzip stream is cut off")
        parts.append(part)
        rest = member.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_xerial(data: Buffer) -> bytes:
    chunks = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            chunks.append(_BLOCK_LENGTH.pack(len(block)))
            chunks.append(block)
        return b"".join(chunks)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_raw_snappy(view, max_bytes)
    chunks: list[bytes] = []
    position, room = len(_XERIAL_HEADER), max_bytes
    while position < len(view):
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            # Streams may be concatenated, each with its header.
            position += len(_XERIAL_HEADER)
            continue
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise CorruptBatchError(f"snappy block of {length} bytes does not fit")
        chunks.append(_decompress_raw_snappy(view[position : position + length], room))
        room -= len(chunks[-1])
        position += length
    return b"".join(chunks)


def _decompress_raw_snappy(data: memoryview, max_bytes: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(cramjam.snappy.decompress_raw(data))


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # Kafka's default level 9 stands for the fast compressor; Java reads independent blocks only.
    fast = level is None or level == LEVELS[LZ4][2]
    compressor = cramjam.lz4.Compressor(
        level=0 if fast else level, content_checksum=False, block_linked=False
    )
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def with_lz4_checksum_of_magic_0(frame: Buffer) -> bytes:
    """The lz4 frame with the header checksum of magic 0 clients: over the magic bytes too."""
    return _with_lz4_checksum(frame, with_magic=True)


def with_lz4_checksum_of_the_format(frame: Buffer) -> bytes:
    """The lz4 frame of a magic 0 message with the header checksum that other readers check.

    Raises:
        CorruptBatchError: it is not an lz4 frame.
    """
    return _with_lz4_checksum(frame, with_magic=False)


def _with_lz4_checksum(frame: Buffer, *, with_magic: bool) -> bytes:
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC:
        raise CorruptBatchError("bytes are not an lz4 frame")
    flags = frame[4]
    end = 6 + (8 if flags & _LZ4_CONTENT_SIZE_FLAG else 0)
    end += 4 if flags & _LZ4_DICTIONARY_FLAG else 0
    if len(frame) <= end:
        raise CorruptBatchError("lz4 frame is cut off in its header")
    result = bytearray(frame)
    result[end] = (_xxhash32(result[0 if with_magic else 4 : end]) >> 8) & 0xFF
    return bytes(result)


_PRIME_1, _PRIME_2, _PRIME_3 = 2654435761, 2246822519, 3266489917
_PRIME_4, _PRIME_5 = 668265263, 374761393
_MASK = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK


def _xxhash32(data: bytes | bytearray) -> int:
    """xxHash-32 with seed 0, for an lz4 header's few bytes."""
    position, length = 0, len(data)
    if length >= 16:
        lanes = [_PRIME_1 + _PRIME_2, _PRIME_2, 0, -_PRIME_1]
        while length - position >= 16:
            for lane in range(4):
                word = int.from_bytes(data[position : position + 4], "little")
                lanes[lane] = _rotate(lanes[lane] + word * _PRIME_2, 13) * _PRIME_1
                position += 4
        total = sum(_rotate(lanes[lane], bits) for lane, bits in enumerate((1, 7, 12, 18)))
    else:
        total = _PRIME_5
    total += length
    while length - position >= 4:
        word = int.from_bytes(data[position : position + 4], "little")
        total = _rotate(total + word * _PRIME_3, 17) * _PRIME_4
        position += 4
    for byte in data[position:]:
        total = _rotate(total + byte * _PRIME_5, 11) * _PRIME_1
    total &= _MASK
    total = ((total ^ total >> 15) * _PRIME_2) & _MASK
    total = ((total ^ total >> 13) * _PRIME_3) & _MASK
    return total ^ total >> 16
