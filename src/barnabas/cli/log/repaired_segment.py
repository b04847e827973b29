"""Recover a damaged segment: keep intact batches, and correct batches with one flipped bit.

A batch that cannot be saved is replaced by an empty batch with the same offsets, like those that
compaction leaves. All later batches keep their offsets, and consumers continue with the next
record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    set_crc,
    set_offset_and_epoch,
)
from barnabas.record.compiled import crc32c
from barnabas.storage.config import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.cli.log.read_only import ReadOnlyFile
    from barnabas.storage.recovery.batch_order import BatchOrder

__all__ = ["Following", "Piece", "first_header", "repaired_pieces"]

# Larger batches are not searched for a flipped bit: each bit costs a checksum of the batch.
_SEARCHED_BYTES_MAX = 16 << 10
_BLOCK_BYTES = 4 << 20
_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
_LENGTH_POSITION = 8


class Following(NamedTuple):
    """The data after a segment."""

    # Base offset of the next segment; LONG_MAX if there is none.
    base_offset: int = LONG_MAX
    # Header of its first batch; None if that is damaged.
    header: BatchHeader | None = None


class Piece(NamedTuple):
    """A part of the repaired segment."""

    # Position in the damaged file.
    position: int
    size: int
    # The replacement; None: the part stays unchanged.
    content: bytes | None = None
    # The problem; empty for an intact batch.
    problem: str = ""
    # Offsets of lost records, `last_lost` inclusive; none if `last_lost` is below `first_lost`.
    first_lost: int = 0
    last_lost: int = -1


def repaired_pieces(
    file: ReadOnlyFile, order: BatchOrder, following: Following, *, may_skip: bool
) -> Iterator[Piece]:
    """Yield the pieces of a segment in order.

    Args:
        file: The damaged segment.
        order: The expected next offset and epoch, at the beginning of the segment.
        following: The data after the segment.
        may_skip: Whether offsets may be missing (the log is compacted).
    """
    limit = following.base_offset
    position = 0
    while position < file.size:
        piece, header = _piece_at(file, order, position, following)
        if header is not None:
            order.take(header)
        yield piece
        position += piece.size
    if limit != LONG_MAX and order.next_offset < limit and not may_skip:
        yield _filled(order, position, 0, limit, "offsets are missing before the next segment")


def first_header(file: ReadOnlyFile) -> BatchHeader | None:
    """Return the header of a segment's first batch; None if that is damaged."""
    batch = _intact_batch(file, 0)
    return None if batch is None else _header(batch)


def _piece_at(
    file: ReadOnlyFile, order: BatchOrder, position: int, following: Following
) -> tuple[Piece, BatchHeader | None]:
    """Return the piece at a position, and the header of its batch.

    The header is None for lost or filled pieces.
    """
    limit = following.base_offset
    batch = _intact_batch(file, position)
    if batch is not None:
        header = _header(batch)
        behind = _intact_batch(file, position + len(batch))
        after = following.header if behind is None else _header(behind)
        problem = order.problem(header, after, limit)
        if problem is None and header.next_offset <= limit:
            return Piece(position, len(batch)), header
        repaired = _with_corrected_header(batch, order, after, limit)
        if repaired is not None:
            piece = Piece(
                position, len(batch), repaired, f"{problem}: it is {_describe_change(repaired)}"
            )
            return piece, _header(repaired)
    else:
        repaired = _with_restored_bit(file, position, order)
        if repaired is not None:
            what = "its CRC is wrong: one flipped bit was corrected"
            return Piece(position, len(repaired), repaired, what), _header(repaired)
    start, base_offset = _next_intact(file, order, position, limit)
    lost = start - position
    if start == file.size and limit == LONG_MAX:
        what = f"the last {lost} bytes are no intact batches"
        return Piece(position, lost, b"", what, order.next_offset, LONG_MAX), None
    return _filled(order, position, lost, base_offset, f"{lost} bytes are no intact batch"), None


def _describe_change(batch: bytes) -> str:
    header = _header(batch)
    return f"given offset {header.base_offset} and leader epoch {header.partition_leader_epoch}"


def _header(batch: bytes | bytearray) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(batch))


def _intact_batch(file: ReadOnlyFile, position: int) -> bytes | None:
    """Return the batch at a position if its structure and CRC are valid."""
    head = file.read_at(HEADER_SIZE, position)
    if len(head) < HEADER_SIZE:
        return None
    header = _header(head)
    if header.magic != MAGIC_V2 or not _LENGTH_MIN <= header.batch_length <= file.size - position:
        return None
    batch = file.read_at(header.size, position)
    if header.last_offset_delta < 0 or not check_crc(batch, 0, header):
        return None
    return batch


def _with_corrected_header(
    batch: bytes, order: BatchOrder, after: BatchHeader | None, following: int
) -> bytes | None:
    """Return the batch with corrected offset and epoch; None if they cannot be determined."""
    header = _header(batch)
    end = order.next_offset + header.last_offset_delta + 1
    limit = following if after is None else after.base_offset
    # The next batch determines the end of this one; at the end of the log, there is none.
    if end != limit and not (after is None and limit == LONG_MAX):
        return None
    epoch = header.partition_leader_epoch
    highest = LONG_MAX if after is None else after.partition_leader_epoch
    if not order.epoch <= epoch <= highest or (after is None and order.epoch >= 0):
        epoch = max(order.epoch, 0)
    repaired = bytearray(batch)
    set_offset_and_epoch(repaired, 0, order.next_offset, epoch)
    return bytes(repaired)


def _with_restored_bit(file: ReadOnlyFile, position: int, order: BatchOrder) -> bytes | None:
    """Return the batch at a position with one bit flipped so that its CRC matches."""
    size = min(_SEARCHED_BYTES_MAX, file.size - position)
    block = bytearray(file.read_at(size, position))
    if len(block) < HEADER_SIZE:
        return None
    block[MAGIC_POSITION] = MAGIC_V2
    length = int.from_bytes(block[_LENGTH_POSITION:LOG_OVERHEAD], "big")
    for bit in range(33):
        # Try the length as it is, then with each of its bits flipped.
        end = (length ^ (1 << bit - 1 if bit else 0)) + LOG_OVERHEAD
        if not HEADER_SIZE <= end <= len(block):
            continue
        block[_LENGTH_POSITION:LOG_OVERHEAD] = (end - LOG_OVERHEAD).to_bytes(4, "big")
        batch = block[:end]
        if not bit:
            if _restore_bit(batch):
                break
        elif check_crc(batch, 0, _header(batch)):
            break
    else:
        return None
    header = _header(batch)
    is_continued = header.base_offset >= order.next_offset and header.last_offset_delta >= 0
    return bytes(batch) if is_continued else None


def _restore_bit(batch: bytearray) -> bool:
    """Find and restore the flipped bit. Return whether that made the CRC match."""
    wanted = int.from_bytes(batch[CRC_POSITION:ATTRIBUTES_POSITION], "big")
    found = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
    if (wanted ^ found).bit_count() <= 1:
        # Only the magic was wrong and is already set, or a bit of the checksum itself is wrong.
        batch[CRC_POSITION:ATTRIBUTES_POSITION] = found.to_bytes(4, "big")
        return True
    for at in range(ATTRIBUTES_POSITION, len(batch)):
        for bit in range(8):
            batch[at] ^= 1 << bit
            with memoryview(batch) as view:
                is_right = crc32c(view[ATTRIBUTES_POSITION:]) == wanted
            if is_right:
                return True
            batch[at] ^= 1 << bit
    return False


def _next_intact(
    file: ReadOnlyFile, order: BatchOrder, position: int, following: int
) -> tuple[int, int]:
    """Return the position and base offset of the next intact batch, or the end of the file."""
    magic = bytes([MAGIC_V2])
    block_start = position + 1
    while block_start < file.size:
        block = file.read_at(_BLOCK_BYTES, block_start)
        at = block.find(magic, MAGIC_POSITION)
        while at >= 0:
            start = block_start + at - MAGIC_POSITION
            base_offset = int.from_bytes(block[at - MAGIC_POSITION : at - 8], "big")
            if order.next_offset <= base_offset < following:
                batch = _intact_batch(file, start)
                if batch is not None and _header(batch).partition_leader_epoch >= order.epoch:
                    return start, base_offset
            at = block.find(magic, at + 1)
        block_start += _BLOCK_BYTES - MAGIC_POSITION
    return file.size, following


def _filled(order: BatchOrder, position: int, size: int, until: int, problem: str) -> Piece:
    """Return an empty batch for the offsets up to `until`, exclusive."""
    first = order.next_offset
    if until <= first:
        return Piece(position, size, b"", problem, first, until - 1)
    values = (
        first, _LENGTH_MIN, max(order.epoch, 0), MAGIC_V2, 0, 0, until - first - 1, NO_TIMESTAMP,
        NO_TIMESTAMP, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 0,
    )  # fmt: skip
    batch = bytearray(HEADER.pack(*values))
    set_crc(batch, 0, HEADER_SIZE)
    order.take(_header(bytes(batch)))
    return Piece(position, size, bytes(batch), problem, first, until - 1)
