"""Reads and offset lookups of a partition's log (the reading half of Kafka's UnifiedLog).

Reads return slices of the file, from which the network sends.

Lookups of offsets by timestamp (ListOffsets; KIP-79, KIP-734) are generators. A batch may have
millions of records, and timestamps may not narrow the search within a segment. So a search yields
after a slice of records or headers. It raises LogChangedError if the segment that it reads was
truncated or deleted in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.record.batch import NO_TIMESTAMP
from barnabas.record.record import CorruptBatchError
from barnabas.storage.errors import (
    CorruptRecordError,
    DamagedLogError,
    LogChangedError,
    OffsetInRemoteTierError,
    OffsetOutOfRangeError,
)
from barnabas.storage.results import AbortedTransaction, FetchIsolation, ReadResult
from barnabas.storage.segment.batch_scan import describe_end, valid_batches, whole_headers
from barnabas.storage.segment.record_search import find_record
from barnabas.storage.topic_partition import LOG_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.record.batch import BatchHeader
    from barnabas.record.compiled import CompiledRecord
    from barnabas.storage.log.local_log import LocalLog
    from barnabas.storage.log.log_offsets import LogOffsets
    from barnabas.storage.log_dependencies import DiskGuard
    from barnabas.storage.results import LogOffsetMetadata
    from barnabas.storage.segment.segment import Segment
    from barnabas.storage.segment.segments import Segments
    from barnabas.storage.segment.transaction_index import AbortedEntry
    from barnabas.waiting.steps import OffLoop

    # Timestamp, offset, leader epoch.
    Found: TypeAlias = tuple[int, int, int]
    Search: TypeAlias = Generator[OffLoop | None, Any, Found | None]


# Headers examined per step: about a millisecond.
HEADERS_PER_STEP = 500
# Time indexes examined per step: some milliseconds.
SEGMENTS_PER_STEP = 100


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
        return (yield from find_record(batch, header, is_last))
    except CorruptBatchError as error:
        raise CorruptRecordError(f"{segment!r} at {position}: {error}") from error


def _check_unchanged(segments: Segments, segment: Segment, end: int) -> None:
    """Check that the segment still belongs to the log and reaches `end`.

    Raises:
        LogChangedError: it was deleted or truncated.
    """
    if segments.floor(segment.base_offset) is not segment or segment.size < end:
        raise LogChangedError(f"{segment!r} was truncated or deleted during the search")


# Cached members: access to an enum member costs 100 ns, as much as a function call.
_LOG_END = FetchIsolation.LOG_END
_HIGH_WATERMARK = FetchIsolation.HIGH_WATERMARK
_TXN_COMMITTED = FetchIsolation.TXN_COMMITTED


class LogReader:
    """Reads the batches of one log, and finds offsets and their positions."""

    __slots__ = ("_guard", "_high_watermark_metadata", "_layout_count", "_local", "_offsets")

    def __init__(self, local: LocalLog, offsets: LogOffsets, guard: DiskGuard) -> None:
        self._local = local
        self._offsets = offsets
        self._guard = guard
        # Position of a high watermark; None until it is requested. Valid for the current high
        # watermark and the current layout of the segments only.
        self._high_watermark_metadata: LogOffsetMetadata | None = None
        # `LocalLog.layout_count` when that position was found.
        self._layout_count = 0

    # -- positions ---------------------------------------------------------------------------

    def end_offset_metadata(self) -> LogOffsetMetadata:
        """Return the log end offset and its position."""
        return self._local.end_metadata()

    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """Return the high watermark and its position."""
        high_watermark = self._offsets.high_watermark
        if high_watermark == self._offsets.log_end_offset:
            return self._local.end_metadata()
        known = self._high_watermark_metadata
        is_same_layout = self._layout_count == self._local.layout_count
        if known is None or known.message_offset != high_watermark or not is_same_layout:
            self._layout_count = self._local.layout_count
            known = self._high_watermark_metadata = self.metadata_of(high_watermark)
        return known

    def last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """Return the last stable offset and its position."""
        offset = self._offsets.last_stable_offset
        if offset == self._offsets.high_watermark:
            return self.high_watermark_metadata()
        return self.metadata_of(offset)

    def metadata_of(self, offset: int) -> LogOffsetMetadata:
        """Return the position of an offset between log start and log end."""
        with self._guard:
            return self._local.metadata_of(offset)

    # -- reading -----------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, isolation: FetchIsolation, min_one_batch: bool
    ) -> ReadResult:
        """Return a slice of the file from the batch that contains `offset` on.

        Args:
            offset: between local log start and log end, both inclusive.
            max_bytes: maximum size of the slice; the last batch may be incomplete.
            isolation: up to which offset records are visible.
            min_one_batch: return the whole first batch, however large.

        Raises:
            OffsetInRemoteTierError: only the remote tier has the record at `offset`.
            OffsetOutOfRangeError: `offset` is outside [log start, log end].
            DamagedLogError: the batch of `offset`, or a batch before it, is damaged or missing.
        """
        end, start = self._offsets.log_end_offset, self._offsets.local_log_start_offset
        if offset > end or offset < start:
            raise self._outside(offset)
        if offset == end:
            return self._local.empty_at_end(isolation is _TXN_COMMITTED)
        if isolation is _HIGH_WATERMARK:
            bound = self.high_watermark_metadata()
        elif isolation is _LOG_END:
            bound = self._local.end_metadata()
        else:
            return self._read_committed(offset, max_bytes, min_one_batch)
        return self._read_below(offset, max_bytes, bound, min_one_batch)

    def _outside(self, offset: int) -> OffsetOutOfRangeError:
        start, end = self._offsets.log_start_offset, self._offsets.log_end_offset
        if start <= offset < self._offsets.local_log_start_offset:
            return OffsetInRemoteTierError(f"offset {offset} is only in the remote tier")
        return OffsetOutOfRangeError(f"offset {offset} is outside [{start}, {end}]")

    def _read_below(
        self, offset: int, max_bytes: int, bound: LogOffsetMetadata, min_one_batch: bool
    ) -> ReadResult:
        if offset >= bound.message_offset:
            return ReadResult(b"", self.metadata_of(offset))
        try:
            return self._local.read(offset, max_bytes, bound, min_one_batch)
        except OSError as error:
            raise self._guard.failure(error) from error
        except DamagedLogError as error:
            self._guard.report(error)
            raise

    def _read_committed(self, offset: int, max_bytes: int, min_one_batch: bool) -> ReadResult:
        bound = self.last_stable_offset_metadata()
        result = self._read_below(offset, max_bytes, bound, min_one_batch)
        aborted: list[AbortedTransaction] = []
        if len(result.records):
            with self._guard:
                aborted = self._local.aborted_within(result, bound.message_offset)
        stable, committed = self._offsets.last_stable_offset, self._offsets.high_watermark
        assert bound.message_offset <= stable <= committed, (
            f"NoReadOfAborted: bound={bound.message_offset} last_stable_offset={stable} "
            f"high_watermark={committed}"
        )
        result.aborted_transactions = aborted
        return result

    def verify(self, offset: int, max_bytes: int) -> DamagedLogError | None:
        """Check the CRCs of the batches from `offset` on, within its segment.

        Returns:
            The damage that was found and reported; None if there is none.
        """
        try:
            segment = self._local.segments.floor(offset)
            place = None if segment is None else segment.locate(offset, self._local.may_skip)
            if segment is None or place is None:
                return None
            position = place.position
            end = min(segment.size, position + max(max_bytes, place.size))
            for at, header, _ in valid_batches(segment.file, position, end):
                position = at + header.size
            problem, is_incomplete = describe_end(segment.file, position, end)
            if position == end or (is_incomplete and end < segment.size):
                return None
            error = DamagedLogError(segment.path(LOG_SUFFIX), position, problem)
        except DamagedLogError as damage:
            error = damage
        self._guard.report(error)
        return error

    def aborted_transactions_below(self, offset: int) -> list[AbortedEntry]:
        """Return the aborted transactions that lie at least partly below `offset`."""
        with self._guard:
            return self._local.segments.collect_aborted(0, offset)

    def offset_for_timestamp(self, timestamp: int) -> Search:
        """Find the first local record at or after `timestamp`, in steps.

        Returns:
            Its timestamp, offset and leader epoch. None if no record from the local log start on is
                that late.
        """

        with self._guard:
            segments, start = self._local.segments, self._offsets.local_log_start_offset
            return (yield from find_by_timestamp(segments, timestamp, start))

    def max_timestamp_offset(self) -> Search:
        """Find the first local record with the largest timestamp, in steps.

        Returns:
            Its timestamp, offset and leader epoch, or None.
        """

        with self._guard:
            segments, start = self._local.segments, self._offsets.local_log_start_offset
            return (yield from find_max_timestamp(segments, start))
