"""Lookup of offsets by timestamp (ListOffsets; KIP-79, KIP-734).

A batch may have millions of records, and timestamps may not narrow the search within a segment. So
the search is a generator that yields after a slice of records or headers. It raises LogChangedError
if the segment that it reads was truncated or deleted in between.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.record.batch import NO_TIMESTAMP, CorruptBatchError
from barnabas.record.columns import record_slices, uncompressed
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX, decompressed_bytes_max
from barnabas.record.errors import DecompressedTooLargeError
from barnabas.storage.errors import CorruptRecordError, LogChangedError
from barnabas.storage.segment.batch_scan import whole_headers
from barnabas.waiting.off_loop import OffLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.record.batch import BatchHeader, Buffer
    from barnabas.record.compiled import CompiledRecord
    from barnabas.storage.segment.segment import Segment
    from barnabas.storage.segment.segments import Segments

    # Timestamp, offset, leader epoch.
    Found: TypeAlias = tuple[int, int, int]
    Search: TypeAlias = Generator[OffLoop | None, Any, Found | None]

# Headers examined per step: about a millisecond.
HEADERS_PER_STEP = 500
# Time indexes examined per step: some milliseconds.
SEGMENTS_PER_STEP = 100
# Maximum bytes decompressed on the loop.
_INLINE_BYTES = 1 << 20


def find_by_timestamp(segments: Segments, timestamp: int, log_start_offset: int) -> Search:
    """Find the first record at or after both limits.

    Returns:
        Its timestamp, offset and leader epoch, or None.
    """
    yield from _read_times(segments, log_start_offset)
    for segment in segments.reaching(timestamp, log_start_offset):
        found = yield from _find_in_segment(segments, segment, timestamp, log_start_offset)
        if found is not None:
            return found
    return None


def find_max_timestamp(segments: Segments, log_start_offset: int) -> Search:
    """Find the first record with the largest timestamp.

    If no record has a timestamp, the first record is found.

    Returns:
        Its timestamp, offset and leader epoch, or None.
    """
    yield from _read_times(segments, log_start_offset)
    if not segments.active.size and len(segments) == 1:
        return None
    first, later = segments.max_timestamps(log_start_offset)
    found = yield from find_by_timestamp(
        segments, max(first.max_timestamp, later), log_start_offset
    )
    if found is not None:
        return found
    # The record with that timestamp is below the log start; only its segment's batches show the
    # largest timestamp above the log start.
    latest = yield from _max_timestamp_above(segments, first, log_start_offset)
    return (yield from find_by_timestamp(segments, max(latest, later), log_start_offset))


def _read_times(segments: Segments, log_start_offset: int) -> Generator[OffLoop | None, Any, None]:
    """Read the largest timestamp of each segment, which the first search after a start does."""
    while segments.read_times(log_start_offset, SEGMENTS_PER_STEP):
        yield None


def _max_timestamp_above(
    segments: Segments, segment: Segment, log_start_offset: int
) -> Generator[OffLoop | None, Any, int]:
    """Return the largest timestamp of the remaining records in the log's first segment."""
    latest = NO_TIMESTAMP
    position = segment.position_of(log_start_offset)
    while True:
        left = HEADERS_PER_STEP
        for start, header in whole_headers(segment.file, position, segment.size):
            position = start + header.size
            left -= 1
            if header.last_offset >= log_start_offset and header.max_timestamp > latest:
                if header.base_offset >= log_start_offset:
                    latest = header.max_timestamp
                else:
                    times = _Largest(log_start_offset, latest)
                    yield from _through_batch(segment, start, header, times.take)
                    latest, left = times.latest, 0
            if not left:
                break
        else:
            return latest
        # The file may have been closed in between, so `segment.file` is evaluated again.
        yield None
        _check_unchanged(segments, segment, position)


class _Largest:
    """The largest timestamp of records from an offset on."""

    __slots__ = ("_first_offset", "latest")

    def __init__(self, first_offset: int, latest: int) -> None:
        self._first_offset = first_offset
        self.latest = latest

    def take(self, record: CompiledRecord) -> bool:
        """Process a record; return False, so that the scan continues."""
        at = record.timestamp
        if at is not None and at > self.latest and record.offset >= self._first_offset:
            self.latest = at
        return False


def _find_in_segment(
    segments: Segments, segment: Segment, timestamp: int, log_start_offset: int
) -> Search:
    def is_found(record: CompiledRecord) -> bool:
        # The compiled reader returns None for timestamp -1.
        at = NO_TIMESTAMP if record.timestamp is None else record.timestamp
        return at >= timestamp and record.offset >= log_start_offset

    position = segment.position_of(max(segment.lookup_time(timestamp), log_start_offset))
    while True:
        left = HEADERS_PER_STEP
        for start, header in whole_headers(segment.file, position, segment.size):
            position = start + header.size
            left -= 1
            if header.max_timestamp >= timestamp and header.last_offset >= log_start_offset:
                record = yield from _through_batch(segment, start, header, is_found)
                if record is not None:
                    at = NO_TIMESTAMP if record.timestamp is None else record.timestamp
                    return at, record.offset, header.partition_leader_epoch
                left = 0
            if not left:
                break
        else:
            return None
        # The file may have been closed in between, so `segment.file` is evaluated again.
        yield None
        _check_unchanged(segments, segment, position)


def _through_batch(
    segment: Segment,
    position: int,
    header: BatchHeader,
    is_last: Callable[[CompiledRecord], bool],
) -> Generator[OffLoop | None, Any, CompiledRecord | None]:
    """Return the first record of a batch for which `is_last` returns True, or None."""
    batch = segment.file.read_at(header.size, position)
    try:
        whole = yield from _uncompressed(batch, header)
        seen = 0
        for part in record_slices(whole, header):
            for record in part:
                if is_last(record):
                    return record
            seen += len(part)
            if seen < header.record_count:
                yield None
    except CorruptBatchError as error:
        raise CorruptRecordError(f"{segment!r} at {position}: {error}") from error
    return None


def _uncompressed(batch: bytes, header: BatchHeader) -> Generator[OffLoop | None, Any, Buffer]:
    try:
        return uncompressed(batch, 0, header, _INLINE_BYTES)
    except DecompressedTooLargeError:
        bytes_max = decompressed_bytes_max(header.compression, len(batch), DECOMPRESSED_BYTES_MAX)
    whole: Buffer = yield OffLoop(partial(uncompressed, batch, 0, header), bytes_max, len)
    return whole


def _check_unchanged(segments: Segments, segment: Segment, end: int) -> None:
    """Check that the segment still belongs to the log and reaches `end`.

    Raises:
        LogChangedError: it was deleted or truncated.
    """
    if segments.floor(segment.base_offset) is not segment or segment.size < end:
        raise LogChangedError(f"{segment!r} was truncated or deleted during the search")
