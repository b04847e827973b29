"""Compaction of one log's files, independent of the broker (Kafka's Cleaner).

First, the dirty segments are read to map each key to its last offset, until the map is full. Then
all segments up to that point are read, in groups that fit into one segment. The retained records of
each group are written to a segment with the suffix `.cleaned`. The broker's event loop swaps that
segment in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    read_header,
)
from barnabas.record.columns import record_slices, uncompressed
from barnabas.record.record import CorruptBatchError
from barnabas.storage.cleaner.cleaner_filter import (
    BatchFilter,
    CleanedSegment,
    CleanedTransactions,
    CleaningStats,
    MapBuilt,
    OffsetMap,
)
from barnabas.storage.errors import CorruptRecordError
from barnabas.storage.segment.batch_scan import PlacedBatch
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.segment_indexes import RELATIVE_OFFSET_MAX
from barnabas.storage.topic_partition import (
    CLEANED_FILE_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.record.batch import Buffer
    from barnabas.runtime.disk import Disk, File
    from barnabas.storage.cleaner.cleaner_filter import CleaningJob, SourceSegment
    from barnabas.storage.segment.transaction_index import AbortedEntry


_BATCH_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD


def clean(disk: Disk, job: CleaningJob) -> Iterator[object]:
    """Run one compaction pass; `runtime.offload` defines what a task yields.

    Raises:
        CorruptRecordError: a segment is damaged; its file is unchanged.
        CorruptBatchError: a batch is damaged; its file is unchanged.
        OSError: the disk failed.
    """
    offsets = OffsetMap(job.map_capacity)
    yield from build_map(disk, job, offsets)
    end_offset = offsets.latest_offset + 1
    yield MapBuilt(end_offset, offsets.utilization)
    stats = CleaningStats()
    transactions = CleanedTransactions(job.aborted)
    batch_filter = BatchFilter(job, offsets, transactions, stats)
    sources = [source for source in job.sources if source.base_offset < end_offset]
    for group in group_segments(disk, job, sources):
        yield from _Cleaning(disk, job, group, stats).run(batch_filter, transactions)
    stats.keyless = offsets.keyless
    yield stats


def build_map(disk: Disk, job: CleaningJob, offsets: OffsetMap) -> Iterator[int]:
    """Map each key to its last offset from the first dirty offset on, until the map is full."""
    start = job.first_dirty_offset
    offsets.latest_offset = start - 1
    transactions = CleanedTransactions(entry for entry in job.aborted if entry.last_offset >= start)
    for source in job.sources:
        if source.end_offset <= start:
            continue
        for block, size in _blocks(disk, job, source):
            for position, header in _batches(block, size):
                if header.last_offset < start:
                    continue
                if not check_crc(block, position, header):
                    raise _damaged(job, source, header)
                if not _take(offsets, transactions, (block, position, header), start):
                    return
            yield size
        # This includes a gap at the segment's end.
        offsets.latest_offset = max(offsets.latest_offset, source.end_offset - 1)


def _take(
    offsets: OffsetMap,
    transactions: CleanedTransactions,
    batch: tuple[Buffer, int, BatchHeader],
    start: int,
) -> bool:
    """Put the keys of a batch into the map; return whether they fit."""
    block, position, header = batch
    if header.is_control:
        transactions.on_control_batch(block, position, header)
    elif not transactions.on_batch(header) and header.record_count:
        # A compressed batch may contain any number of records.
        for records in record_slices(uncompressed(block, position, header), header):
            if not offsets.put(records, start):
                return False
    offsets.latest_offset = header.last_offset
    return True


def group_segments(
    disk: Disk, job: CleaningJob, sources: list[SourceSegment]
) -> Iterator[list[SourceSegment]]:
    """Yield groups of adjacent segments that fit into one, by bytes, indexes and offsets."""
    config = job.config
    limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
    group: list[SourceSegment] = []
    sums = (0, 0, 0)
    for source in sources:
        sizes = (
            source.size,
            _size(disk, job, source, INDEX_SUFFIX),
            _size(disk, job, source, TIME_INDEX_SUFFIX),
        )
        together = tuple(map(int.__add__, sums, sizes))
        if group and (
            any(map(int.__gt__, together, limits))
            or (source.size and source.end_offset - 1 - group[0].base_offset > RELATIVE_OFFSET_MAX)
        ):
            yield group
            group, together = [], sizes
        group.append(source)
        sums = (together[0], together[1], together[2])
    if group:
        yield group


def _size(disk: Disk, job: CleaningJob, source: SourceSegment, suffix: str) -> int:
    path = offset_file(job.directory, source.base_offset, suffix)
    return disk.size(path) if disk.exists(path) else 0


class _Cleaning:
    """Rewrites one group of segments."""

    __slots__ = ("_cleaned", "_disk", "_group", "_job", "_stats")

    def __init__(
        self, disk: Disk, job: CleaningJob, group: list[SourceSegment], stats: CleaningStats
    ) -> None:
        self._disk = disk
        self._job = job
        self._group = group
        self._stats = stats
        # None while nothing was removed: an unchanged single segment is not rewritten.
        self._cleaned: Segment | None = None

    def run(
        self, batch_filter: BatchFilter, transactions: CleanedTransactions
    ) -> Iterator[int | CleanedSegment]:
        """Read the group, write the retained batches, and yield the new segment."""
        transactions.retained.clear()
        # The last batches of the pass and of the group stay, so that no segment ends early.
        needed_ends = (self._job.first_uncleanable_offset, self._group[-1].end_offset)
        if len(self._group) > 1:
            self._begin()
        for source in self._group:
            done = 0
            for block, size in _blocks(self._disk, self._job, source):
                self._stats.bytes_read += size
                output, placed = self._filter(batch_filter, source, (block, size), needed_ends)
                if self._cleaned is None and output is not None:
                    self._begin()
                    yield from self._copy(source, done)
                if self._cleaned is not None:
                    kept: Buffer = block[:size] if output is None else output
                    _append(self._cleaned, kept, placed)
                    self._stats.bytes_kept += len(kept)
                    yield size + len(kept)
                else:
                    self._stats.bytes_kept += size
                    yield size
                done += size
        if self._cleaned is not None:
            yield self._finish(self._cleaned, transactions.retained)

    def _filter(
        self,
        batch_filter: BatchFilter,
        source: SourceSegment,
        block: tuple[memoryview, int],
        needed_ends: tuple[int, ...],
    ) -> tuple[bytearray | None, list[PlacedBatch]]:
        """Return the retained part of a block, and the place of each batch in it.

        The first value is None if the whole block is retained unchanged.
        """
        content, size = block
        output: bytearray | None = None
        placed: list[PlacedBatch] = []
        # Start of the unchanged batches that are not copied yet; they are copied together.
        first = 0
        position = 0
        for position, header in _batches(content, size):
            if not check_crc(content, position, header):
                raise _damaged(self._job, source, header)
            retained = batch_filter.retain(content, position, header, needed_ends)
            if retained is content:
                where = position - first + (0 if output is None else len(output))
                placed.append(
                    PlacedBatch(where, header.size, header.last_offset, header.max_timestamp)
                )
                continue
            output = bytearray() if output is None else output
            output += content[first:position]
            first = position + header.size
            if retained is not None:
                stays = read_header(retained)
                # A batch without records contributes no timestamp.
                max_timestamp = stays.max_timestamp if stays.record_count else NO_TIMESTAMP
                placed.append(
                    PlacedBatch(len(output), len(retained), header.last_offset, max_timestamp)
                )
                output += retained
        if output is not None:
            output += content[first:size]
        return output, placed

    def _begin(self) -> None:
        segment = Segment(
            self._disk,
            self._job.directory,
            self._group[0].base_offset,
            self._job.config,
            suffix=CLEANED_FILE_SUFFIX,
        )
        segment.create(self._job.now_ms, 0)
        segment.clear_indexes()
        self._cleaned = segment

    def _copy(self, source: SourceSegment, end: int) -> Iterator[int]:
        """Copy the unchanged first `end` bytes of a segment."""
        assert self._cleaned is not None
        done = 0
        for block, size in _blocks(self._disk, self._job, source, end):
            placed = [
                PlacedBatch(position, header.size, header.last_offset, header.max_timestamp)
                for position, header in _batches(block, size)
            ]
            _append(self._cleaned, block[:size], placed)
            done += size
            yield 2 * size
        assert done == end, (done, end)

    def _finish(self, cleaned: Segment, aborted: list[AbortedEntry]) -> CleanedSegment:
        """Complete and sync the files before the segment is used."""
        for entry in aborted:
            cleaned.txn_index.append(entry)
        cleaned.seal()
        cleaned.sync_all()()
        # Retention uses the modification time where records have no timestamp.
        last = offset_file(self._job.directory, self._group[-1].base_offset, LOG_SUFFIX)
        modified_ms = self._disk.modified_ms(last)
        self._disk.set_modified_ms(cleaned.path(LOG_SUFFIX), modified_ms)
        cleaned.close()
        replaced = tuple(source.base_offset for source in self._group)
        return CleanedSegment(cleaned.base_offset, cleaned.size, replaced)


def _append(segment: Segment, data: Buffer, placed: list[PlacedBatch]) -> None:
    if placed:
        segment.append(data, segment.base_offset, placed)


def _blocks(
    disk: Disk, job: CleaningJob, source: SourceSegment, end: int | None = None
) -> Iterator[tuple[memoryview, int]]:
    """Yield blocks of a segment, each with the size of the whole batches at its start."""
    end = source.size if end is None else end
    path = offset_file(job.directory, source.base_offset, LOG_SUFFIX)
    file = disk.open(path, create=False)
    try:
        position = 0
        while position < end:
            block, size = _block(file, position, min(job.buffer_bytes, end - position))
            if not size:
                raise CorruptRecordError(f"{path}: the batch at {position} is incomplete")
            yield block, size
            position += size
    finally:
        file.close()


def _block(file: File, position: int, read_bytes: int) -> tuple[memoryview, int]:
    """Read `read_bytes` bytes, or the first batch if it is larger.

    Returns:
        The bytes, and the size of the complete batches at their start.
    """
    read_bytes = max(read_bytes, HEADER_SIZE)
    content = memoryview(file.read_at(read_bytes, position))
    size = _whole_batches(file, position, content)
    if not size and len(content) >= HEADER_SIZE:
        first = BatchHeader._make(HEADER.unpack_from(content)).size
        if first > read_bytes:
            content = memoryview(file.read_at(first, position))
            size = _whole_batches(file, position, content)
    return content, size


def _whole_batches(file: File, position: int, content: memoryview) -> int:
    size = 0
    while len(content) - size >= HEADER_SIZE:
        header = BatchHeader._make(HEADER.unpack_from(content, size))
        if header.batch_length < _BATCH_LENGTH_MIN or header.magic != MAGIC_V2:
            raise CorruptRecordError(f"{file.path}: no batch header at {position + size}")
        if size + header.size > len(content):
            break
        size += header.size
    return size


def _batches(block: memoryview, size: int) -> Iterator[tuple[int, BatchHeader]]:
    position = 0
    while position < size:
        header = BatchHeader._make(HEADER.unpack_from(block, position))
        yield position, header
        position += header.size


def _damaged(job: CleaningJob, source: SourceSegment, header: BatchHeader) -> CorruptBatchError:
    path = offset_file(job.directory, source.base_offset, LOG_SUFFIX)
    return CorruptBatchError(f"{path}: the batch of offset {header.base_offset} is damaged")
