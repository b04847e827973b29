"""Iterate over the batches of a segment's file, including damaged ones."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    BatchHeader,
    check_crc,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.cli.log.read_only import ReadOnlyFile

__all__ = ["ScannedBatch", "SegmentScan"]

_BLOCK_BYTES = 1 << 20
_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
# The smallest message of format 0.
_OLD_LENGTH_MIN = 14
_LENGTH = struct.Struct(">i")


class ScannedBatch(NamedTuple):
    """A batch in the file."""

    position: int
    header: BatchHeader
    # The whole batch; only valid until the next batch.
    data: memoryview
    crc_is_right: bool


class SegmentScan:
    """An iterator over the batches of a segment, for one use.

    Afterwards `stopped_at` and `reason` tell where the data is invalid.
    """

    def __init__(self, file: ReadOnlyFile) -> None:
        self._file = file
        # Position at which the scan ended: the end of the file, unless `reason` is set.
        self.stopped_at = 0
        self.reason: str | None = None
        # Set if the file has a message format older than Kafka 0.11 (0 or 1).
        self.old_format: int | None = None
        # Whether the last batch is incomplete.
        self.is_cut_off = False

    def __iter__(self) -> Iterator[ScannedBatch]:
        block, block_start = memoryview(b""), 0
        position, end = 0, self._file.size
        while position < end:
            self.stopped_at = position
            at = position - block_start
            if at + HEADER_SIZE > len(block):
                block, block_start, at = self._read(_BLOCK_BYTES, position), position, 0
            size = self._size_at(block, at, end - position)
            if not size:
                return
            if at + size > len(block):
                block, block_start, at = self._read(max(size, _BLOCK_BYTES), position), position, 0
                if len(block) < size:
                    self._stop("the file was cut while it was read")
                    return
            header = BatchHeader._make(HEADER.unpack_from(block, at))
            data = block[at : at + size]
            yield ScannedBatch(position, header, data, check_crc(block, at, header))
            position += size
        self.stopped_at = end

    def _size_at(self, block: memoryview, at: int, left: int) -> int:
        """Return the size of the batch at `at`; on failure, set the reason and return 0."""
        if left < HEADER_SIZE and left <= MAGIC_POSITION:
            self.is_cut_off = True
            self._stop(f"{left} bytes are too few for a batch")
            return 0
        length = int(_LENGTH.unpack_from(block, at + 8)[0])
        magic = block[at + MAGIC_POSITION]
        if magic in (0, 1) and _OLD_LENGTH_MIN <= length <= left - LOG_OVERHEAD:
            self.old_format = magic
            self._stop(f"message format {magic}")
            return 0
        if magic != MAGIC_V2 or length < _LENGTH_MIN:
            zeros = not any(block[at : at + HEADER_SIZE])
            self._stop("zeros instead of a batch" if zeros else "no batch begins here")
            return 0
        if length + LOG_OVERHEAD > left:
            self.is_cut_off = True
            missing = length + LOG_OVERHEAD - left
            self._stop(f"a batch of {length + LOG_OVERHEAD} bytes lacks its last {missing}")
            return 0
        return length + LOG_OVERHEAD

    def _stop(self, reason: str) -> None:
        self.reason = reason

    def _read(self, size: int, position: int) -> memoryview:
        return memoryview(self._file.read_at(size, position))
