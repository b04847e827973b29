"""The compression types of record batches, as framed by Java clients, with size limits.

Snappy uses Java's "xerial" stream of blocks; raw snappy is also read. lz4 uses the frame format
with independent blocks (KIP-57). Its magic 0 variant computes the header checksum over the wrong
bytes. The levels are those of KIP-390. Decompression never produces more than a given number of
bytes, regardless of the input.
"""

from __future__ import annotations

import mmap
import zlib
from functools import lru_cache
from struct import Struct, error
from typing import TYPE_CHECKING, Any

from barnabas.record.record import CorruptBatchError, DecompressedTooLargeError
from barnabas.runtime.packages import needed_for

if TYPE_CHECKING:
    from barnabas.record.batch import Buffer

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODES = {name: code for code, name in enumerate(NAMES)}

# Minimum, maximum and default level per code (KIP-390); snappy has no levels.
LEVELS = {GZIP: (1, 9, 6), LZ4: (1, 17, 9), ZSTD: (-131072, 22, 3)}

# Default limit for a decompressed batch. A producer's uncompressed batch has at most
# `max.request.size` bytes.
DECOMPRESSED_BYTES_MAX = 128 << 20

# Initial output size; small, because a new bytearray is zeroed.
_GUESS_BYTES_MIN = 64 << 10
_GUESS_RATIO = 4
# Larger outputs use mapped memory, because it is not zeroed under the interpreter lock (75 ms for
# 128 MiB). Untouched pages cost nothing, and freeing returns the memory to the kernel at once.
_HEAP_BYTES_MAX = 16 << 20

# Mapped memory has slack, so that a zero byte follows the content. The compiled record reader ends
# a number at the first byte below 128, even beyond the content.
_SLACK_BYTES = 64

# Maximum ratio of output size to input size by code; zstd has no useful limit.
_RATIO_MAX = {NONE: 1, GZIP: 1032, SNAPPY: 64, LZ4: 256}

# Maximum bytes per step of decompression, and of input, for libraries that work in steps.
_PIECE_BYTES = 1 << 20
_GZIP_INPUT_BYTES = 16 << 10

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 << 10
_BLOCK_LENGTH = Struct(">i")

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_FLAG = 0x08
_LZ4_DICTIONARY_FLAG = 0x01
_GZIP_WBITS = 31
_OVERFLOW = "whole buffer"


@lru_cache
def codecs_for(code: int) -> Any:
    """Return the library that has a codec.

    Args:
        code: `SNAPPY`, `LZ4` or `ZSTD`; gzip belongs to Python.

    Raises:
        MissingPackageError: It is not installed.
    """
    with needed_for(f"the compression {NAMES[code]}"):
        import cramjam

        return cramjam


def compress(code: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compress `data` as Java clients expect it.

    Args:
        code: compression code 0 to 4.
        data: the bytes of all records of a batch.
        level: a level in the range of `LEVELS`; None for Kafka's default.

    Returns:
        The compressed bytes; `data` itself for code 0.
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
        level = LEVELS[ZSTD][2] if level is None else level
        return bytes(codecs_for(ZSTD).zstd.compress(data, level=level))
    raise ValueError(f"unknown compression code {code}")


def decompress(
    code: int, data: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX, head: Buffer = b""
) -> Buffer:
    """Decompress data of `compress`.

    Args:
        max_bytes: maximum decompressed size.
        head: bytes at the start of the result.

    Returns:
        New bytes, followed by at least one zero byte in memory, and writable if there is a head;
            `data` itself for code 0 without a head.

    Raises:
        CorruptBatchError: the code is unknown, the data is malformed, or the output exceeds
            `max_bytes`.
        MissingPackageError: the library of the codec is not installed.
    """
    if code == NONE:
        return bytearray().join((head, data)) if head else data
    if not NONE < code <= ZSTD:
        raise CorruptBatchError(f"unknown compression code {code}")
    invalid = zlib.error if code == GZIP else codecs_for(code).DecompressionError
    try:
        if code == GZIP:
            return _decompress_gzip(data, _Output(max_bytes, head))
        if code == SNAPPY:
            return _decompress_snappy(data, _Output(max_bytes, head))
        return _decompress_growing(code, data, max_bytes, head)
    except (invalid, error) as problem:
        raise CorruptBatchError(f"bytes are not valid {NAMES[code]}: {problem}") from None


def decompressed_bytes_max(code: int, size: int, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> int:
    """Return an upper bound of the decompressed size of `size` bytes."""
    ratio = _RATIO_MAX.get(code)
    return max_bytes if ratio is None else min(max_bytes, size * ratio)


def _too_large(max_bytes: int) -> DecompressedTooLargeError:
    return DecompressedTooLargeError(f"records decompress to more than {max_bytes} bytes")


def _decompress_growing(code: int, data: Buffer, max_bytes: int, head: Buffer) -> Buffer:
    """Decompress into a buffer that is enlarged fourfold until it suffices, up to `max_bytes`.

    Neither format has a reliable decompressed size. If the library allocated the output, the sender
    would control the memory use.
    """
    codecs = codecs_for(code)
    decompress_into = (codecs.lz4 if code == LZ4 else codecs.zstd).decompress_into
    start = len(head)
    capacity = min(max_bytes, max(_GUESS_BYTES_MIN, len(data) * _GUESS_RATIO))
    while True:
        is_mapped = capacity > _HEAP_BYTES_MAX
        if is_mapped:
            # One attempt with the full limit, because pages that are not written take no memory.
            capacity = max_bytes
            output: bytearray | mmap.mmap = mmap.mmap(-1, start + capacity + _SLACK_BYTES)
        else:
            output = bytearray(start + capacity)
        view = memoryview(output)
        view[:start] = head
        try:
            size = decompress_into(data, view[start : start + capacity])
        except codecs.DecompressionError as problem:
            if _OVERFLOW not in str(problem):
                raise
            if capacity >= max_bytes:
                raise _too_large(max_bytes) from None
            capacity = min(max_bytes, capacity * 4)
            continue
        if is_mapped:
            return view[: start + size]
        kept = view[: start + size]
        return bytearray(kept) if head else bytes(kept)


class _Output:
    """Collects decompressed pieces in a list, or in mapped memory if they are large."""

    __slots__ = ("_head", "_mapped", "_max_bytes", "_pieces", "size")

    def __init__(self, max_bytes: int, head: Buffer) -> None:
        self._max_bytes = max_bytes
        self._head = head
        self._pieces: list[Buffer] = [head] if head else []
        # None while the list is used.
        self._mapped: mmap.mmap | None = None
        # Bytes added, without the head.
        self.size = 0

    @property
    def room(self) -> int:
        """Number of bytes that may still be added."""
        return self._max_bytes - self.size

    def add(self, piece: Buffer) -> None:
        """Add a piece.

        Raises:
            DecompressedTooLargeError: it exceeds the limit.
        """
        self.check_room(len(piece))
        if self._mapped is None and self.size + len(piece) > _HEAP_BYTES_MAX:
            self._mapped = mmap.mmap(-1, len(self._head) + self._max_bytes + _SLACK_BYTES)
            for each in self._pieces:
                self._mapped.write(each)
            self._pieces.clear()
        if self._mapped is None:
            self._pieces.append(piece)
        else:
            self._mapped.write(piece)
        self.size += len(piece)

    def check_room(self, size: int) -> None:
        """Raise DecompressedTooLargeError if `size` more bytes exceed the limit."""
        if size > self.room:
            raise _too_large(self._max_bytes)

    def content(self) -> Buffer:
        """Return the head and all added pieces."""
        if self._mapped is not None:
            return memoryview(self._mapped)[: len(self._head) + self.size]
        if self._head:
            return bytearray().join(self._pieces)
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def _decompress_gzip(data: Buffer, output: _Output) -> Buffer:
    """Decompress all gzip members of `data`.

    The input is passed in pieces, because zlib copies the rest of a piece after each member, and a
    member may have only 20 bytes.
    """
    view = memoryview(data)
    position = 0
    rest: Buffer = b""
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        while not member.eof:
            if not rest:
                rest = view[position : position + _GZIP_INPUT_BYTES]
                position += len(rest)
            # One more byte than the room distinguishes "exactly full" from "too large".
            piece = member.decompress(rest, min(output.room + 1, _PIECE_BYTES))
            if not (rest or piece or member.eof):
                raise CorruptBatchError("gzip stream is truncated")
            if piece:
                output.add(piece)
            rest = member.unconsumed_tail
        rest = member.unused_data
        if not rest and position >= len(view):
            return output.content()


def _compress_xerial(data: Buffer) -> bytes:
    snappy = codecs_for(SNAPPY).snappy
    chunks = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            chunks.append(_BLOCK_LENGTH.pack(len(block)))
            chunks.append(block)
        return b"".join(chunks)


def _decompress_snappy(data: Buffer, output: _Output) -> Buffer:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        output.add(_decompress_raw_snappy(view, output))
        return output.content()
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            # Streams may be concatenated, each with its own header.
            position += len(_XERIAL_HEADER)
            continue
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise CorruptBatchError(f"snappy block of {length} bytes does not fit")
        output.add(_decompress_raw_snappy(view[position : position + length], output))
        position += length
    return output.content()


def _decompress_raw_snappy(data: memoryview, output: _Output) -> bytes:
    snappy = codecs_for(SNAPPY).snappy
    output.check_room(snappy.decompress_raw_len(data))
    return bytes(snappy.decompress_raw(data))


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # Kafka's default level 9 selects the fast compressor; Java reads only independent blocks.
    fast = level is None or level == LEVELS[LZ4][2]
    compressor = codecs_for(LZ4).lz4.Compressor(
        level=0 if fast else level, content_checksum=False, block_linked=False
    )
    with memoryview(data) as view:
        # The compressor accepts only bytes; copying small pieces keeps the interpreter lock short.
        for start in range(0, len(view), _PIECE_BYTES):
            compressor.compress(bytes(view[start : start + _PIECE_BYTES]))
    return bytes(compressor.finish())


def with_lz4_checksum(frame: Buffer, *, covers_magic: bool) -> bytes:
    """Return the lz4 frame with a new checksum in its header.

    Args:
        frame: the frame.
        covers_magic: True for clients of magic 0, whose checksum covers the magic too; False for
            the checksum as the format defines it.

    Raises:
        CorruptBatchError: it is not an lz4 frame.
    """
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC:
        raise CorruptBatchError("bytes are not an lz4 frame")
    flags = frame[4]
    end = 6 + (8 if flags & _LZ4_CONTENT_SIZE_FLAG else 0)
    end += 4 if flags & _LZ4_DICTIONARY_FLAG else 0
    if len(frame) <= end:
        raise CorruptBatchError("lz4 frame is truncated in its header")
    result = bytearray(frame)
    result[end] = (_xxhash32(result[0 if covers_magic else 4 : end]) >> 8) & 0xFF
    return bytes(result)


_PRIME_1, _PRIME_2, _PRIME_3 = 2654435761, 2246822519, 3266489917
_PRIME_4, _PRIME_5 = 668265263, 374761393
_MASK = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK


def _xxhash32(data: bytes | bytearray) -> int:
    """Return the xxHash-32 with seed 0; used for the few bytes of an lz4 header."""
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
