"""Iteration over batches of a segment file: headers for lookups, whole batches for recovery.

The search for the batch of an offset starts at a position that an index gives. An index entry may
be damaged, and so may the batches. The search shows which of the two it is.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Protocol

import msgspec

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
from barnabas.storage.topic_partition import LOG_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.runtime.disk import File


class PlacedBatch(msgspec.Struct, gc=False):
    """Place, offsets and timestamp of one batch within an append."""

    # Position of the batch in the bytes of the append.
    position: int
    # Size of the whole batch in bytes.
    size: int
    last_offset: int
    # Largest timestamp of the batch in ms; -1 without one.
    max_timestamp: int


# Block size for offset lookups: a little more than index.interval.bytes.
_SEEK_BYTES = 8192
_RECOVERY_BYTES = 1 << 20
# End of the checksum field of a message with magic 0 or 1; the checksum covers the rest.
_OLD_CHECKED_FROM = LOG_OVERHEAD + 4
_OLD_BYTES_MAX = 1 << 28
_BATCH_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD


def headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch between `position` and `end`.

    Raises:
        DamagedLogError: a header is invalid.
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
    """Do the same as `headers` for a file whose last batch ends at `end`.

    Raises:
        DamagedLogError: a header is invalid, or a batch extends beyond `end`.
    """
    for found in headers(file, position, end):
        position = found[0] + found[1].size
        yield found
    if position != end:
        raise DamagedLogError(file.path, position, "the batch that begins here is incomplete")


def valid_batches(
    file: File, position: int, end: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield position, header and bytes of each whole batch; stop at the first invalid one.

    Raises:
        CorruptRecordError: the file has messages of magic 0 or 1. They may be intact, so they must
            not be truncated.
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
    """Explain why `valid_batches` stopped before `end`.

    Returns:
        The problem at `position`, and whether a crash can cause it: a partial batch, or zeros.
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
        return f"its length is {header.batch_length}, but only {left} bytes remain", True
    if header.last_offset_delta < 0:
        return f"its last offset delta is {header.last_offset_delta}", False
    return "its CRC is wrong", False


def _is_old_message(file: File, header: BatchHeader, end: int) -> bool:
    """Return whether the file begins with an intact message of magic 0 or 1.

    A header whose magic was zeroed by a power loss looks the same, but its checksum fails.
    """
    size = header.batch_length + LOG_OVERHEAD
    if header.magic not in (0, 1) or not _OLD_CHECKED_FROM < size <= min(end, _OLD_BYTES_MAX):
        return False
    message = file.read_at(size, 0)
    checksum = int.from_bytes(message[LOG_OVERHEAD:_OLD_CHECKED_FROM], "big")
    return checksum == zlib.crc32(message[_OLD_CHECKED_FROM:])


def _read(file: File, size: int, position: int) -> memoryview:
    return memoryview(file.read_at(size, position))


class WrongEntryError(Exception):
    """An index entry does not lead to a batch with its offset."""


class BatchPlace(msgspec.Struct, frozen=True, gc=False):
    """Position of a batch in its segment."""

    position: int
    size: int
    base_offset: int


class SearchedSegment(Protocol):
    """The part of a segment that the search uses."""

    base_offset: int
    # Bytes of batches in the file.
    size: int

    @property
    def file(self) -> File:
        """The open file of batches."""
        ...

    def path(self, suffix: str) -> str:
        """Return the path of the file with that suffix."""
        ...


def find_batch(
    segment: SearchedSegment,
    position: int,
    indexed: int,
    offset: int,
    may_skip: bool,
) -> BatchPlace | None:
    """Return the first batch that ends at or after `offset`; None if there is none.

    Args:
        segment: where to search.
        position: where the search begins, at the start of a batch.
        indexed: last offset of that batch, or of a later batch of the same append (as in Kafka's
            index).
        offset: the offset to find.
        may_skip: whether offsets may be missing between batches (the log is compacted).

    Raises:
        WrongEntryError: no batch of that offset begins at the position.
        DamagedLogError: a batch after the position is damaged.
    """
    first, next_offset = position, segment.base_offset
    try:
        for at, header in whole_headers(segment.file, position, segment.size):
            base_offset = header.base_offset
            is_indexed = at == first and first > 0
            if is_indexed and (base_offset < segment.base_offset or header.last_offset > indexed):
                raise WrongEntryError
            if base_offset != next_offset and not is_indexed:
                _check_jump(segment, at, next_offset, base_offset, may_skip)
            next_offset = header.next_offset
            if next_offset > offset:
                return BatchPlace(at, header.size, base_offset)
    except DamagedLogError as error:
        if first and error.position == first:
            raise WrongEntryError from None
        raise
    if first and first >= segment.size:
        raise WrongEntryError
    return None


def _check_jump(
    segment: SearchedSegment, position: int, expected: int, base_offset: int, may_skip: bool
) -> None:
    if base_offset < expected:
        problem = f"base offset {base_offset} follows offset {expected - 1}"
        raise DamagedLogError(segment.path(LOG_SUFFIX), position, problem)
    if not may_skip:
        # Kafka continues with the next record, and its consumers never notice the gap.
        problem = f"offsets {expected} to {base_offset - 1} are missing before it"
        raise DamagedLogError(segment.path(LOG_SUFFIX), position, problem, is_gap=True)
