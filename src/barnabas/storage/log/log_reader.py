"""Reads and offset lookups of a partition's log (the reading half of Kafka's UnifiedLog).

Reads return slices of the file, from which the network sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.errors import DamagedLogError, OffsetOutOfRangeError
from barnabas.storage.file_names import LOG_SUFFIX
from barnabas.storage.read_result import AbortedTransaction, FetchIsolation, ReadResult
from barnabas.storage.segment.batch_scan import describe_end, valid_batches

if TYPE_CHECKING:
    from barnabas.storage.log.disk_guard import DiskGuard
    from barnabas.storage.log.local_log import LocalLog
    from barnabas.storage.log.log_offsets import LogOffsets
    from barnabas.storage.offset_metadata import LogOffsetMetadata
    from barnabas.storage.segment.offset_search import Search
    from barnabas.storage.segment.transaction_index import AbortedEntry

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
            offset: between log start and log end, both inclusive.
            max_bytes: maximum size of the slice; the last batch may be incomplete.
            isolation: up to which offset records are visible.
            min_one_batch: return the whole first batch, however large.

        Raises:
            OffsetOutOfRangeError: `offset` is outside [log start, log end].
            DamagedLogError: the batch of `offset`, or a batch before it, is damaged or missing.
        """
        end, start = self._offsets.log_end_offset, self._offsets.log_start_offset
        if offset > end or offset < start:
            raise OffsetOutOfRangeError(f"offset {offset} is outside [{start}, {end}]")
        if offset == end:
            return self._local.empty_at_end(isolation is _TXN_COMMITTED)
        if isolation is _HIGH_WATERMARK:
            bound = self.high_watermark_metadata()
        elif isolation is _LOG_END:
            bound = self._local.end_metadata()
        else:
            return self._read_committed(offset, max_bytes, min_one_batch)
        return self._read_below(offset, max_bytes, bound, min_one_batch)

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
        """Find the first record at or after `timestamp`, in steps.

        Returns:
            Its timestamp, offset and leader epoch. None if no record from the log start on is that
                late.
        """
        from barnabas.storage.segment.offset_search import find_by_timestamp

        with self._guard:
            segments = self._local.segments
            return (
                yield from find_by_timestamp(segments, timestamp, self._offsets.log_start_offset)
            )

    def max_timestamp_offset(self) -> Search:
        """Find the first record with the largest timestamp, in steps.

        Returns:
            Its timestamp, offset and leader epoch, or None.
        """
        from barnabas.storage.segment.offset_search import find_max_timestamp

        with self._guard:
            return (
                yield from find_max_timestamp(self._local.segments, self._offsets.log_start_offset)
            )
