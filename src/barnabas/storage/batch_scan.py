"""Walking the batches of a segment's file: headers to find a place, whole batches to recover."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from barnabas.record.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    check_crc,
    made_header,
)
from barnabas.storage.errors import CorruptRecordError, DamagedLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.runtime.disk import File

# What is read at once while looking for an offset: a little more than index.interval.bytes.
_SEEK_BYTES = 8192
_RECOVERY_BYTES = 1 << 20
# Where the checksum of a message of magic 0 or 1 ends, and what it covers begins.
_OLD_CHECKED_FROM = LOG_OVERHEAD + 4
_OLD_BYTES_MAX = 1 << 28
_BATCH_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD


def headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from `position` on that lies wholly below `end`.

    Raises:
        DamagedLogError: a header that cannot be.
    """
    block, block_start = b"", position
    while end - position >= HEADER_SIZE:
        at = position - block_start
        if at + HEADER_SIZE > len(block):
            block, block_start, at = file.read_at(_SEEK_BYTES, position), position, 0
            if len(block) < HEADER_SIZE:
                return
        header = made_header(HEADER.unpack_from(block, at))
        if header.batch_length < _BATCH_LENGTH_MIN or header.magic != MAGIC_V2:
            raise DamagedLogError(file.path, position, "no batch begins here")
        next_position = position + header.batch_length + LOG_OVERHEAD
        if next_position > end:
            return
        yield position, header
        position = next_position


def whole_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """As `headers`, of a file whose last batch ends at `end`.

    Raises:
        DamagedLogError: a header that cannot be, or a length that leads past the end.
    """
    for found in headers(file, position, end):
        position = found[0] + found[1].size
        yield found
    if position != end:
        raise DamagedLogError(file.path, position, "the batch that begins here is cut off")


def valid_batches(
    file: File, position: int, end: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of each whole batch whose CRC holds; the first bad one ends it.

    Raises:
        CorruptRecordError: batches of magic 0 or 1, which are intact perhaps and are not cut off.
    """
    block, block_start = memoryview(b""), position
    while end - position >= HEADER_SIZE:
        at = position - block_start
        if at + HEADER_SIZE > len(block):
            block, block_start, at = _read(file, _RECOVERY_BYTES, position), position, 0
            if len(block) < HEADER_SIZE:
                return
        header = made_header(HEADER.unpack_from(block, at))
        size = header.batch_length + LOG_OVERHEAD
        if position == 0 and _is_old_message(file, header, end):
            raise CorruptRecordError(f"{file.path}: message format {header.magic} is not supported")
        if header.batch_length < _BATCH_LENGTH_MIN or header.magic != MAGIC_V2:
            return
        if size > end - position:
            return
        if at + size > len(block):
            block, block_start, at = _read(file, max(size, _RECOVERY_BYTES), position), position, 0
        if not check_crc(block, at, header) or header.last_offset_delta < 0:
            return
        yield position, header, block[at : at + size]
        position += size


def describe_end(file: File, position: int, end: int) -> tuple[str, bool]:
    """Why `valid_batches` came to its end before `end`.

    Returns:
        What is wrong with the bytes at `position`, and whether a crash leaves such bytes behind the
        last batch: a part of one, or zeros.
    """
    left = end - position
    head = file.read_at(min(HEADER_SIZE, left), position)
    if not any(head):
        return f"{left} bytes begin with zeros instead of a batch", True
    if len(head) < HEADER_SIZE:
        return f"{left} bytes are too few for a batch", True
    header = made_header(HEADER.unpack_from(head))
    if header.magic != MAGIC_V2:
        return f"its magic is {header.magic}", False
    if header.batch_length < _BATCH_LENGTH_MIN:
        return f"its length is {header.batch_length}", False
    if header.size > left:
        return f"its length is {header.batch_length}, only {left} bytes are left", True
    if header.last_offset_delta < 0:
        return f"its last offset delta is {header.last_offset_delta}", False
    return "its CRC is wrong", False


def _is_old_message(file: File, header: BatchHeader, end: int) -> bool:
    """Whether the file begins with an intact message of magic 0 or 1.

    A header whose magic a loss of power made zero looks like one, but for the checksum.
    """
    size = header.batch_length + LOG_OVERHEAD
    if header.magic not in (0, 1) or not _OLD_CHECKED_FROM < size <= min(end, _OLD_BYTES_MAX):
        return False
    message = file.read_at(size, 0)
    checksum = int.from_bytes(message[LOG_OVERHEAD:_OLD_CHECKED_FROM], "big")
    return checksum == zlib.crc32(message[_OLD_CHECKED_FROM:])


def _read(file: File, size: int, position: int) -> memoryview:
    return memoryview(file.read_at(size, position))
