"""Timeouts of acquisition locks (KIP-932)."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from barnabas.server.share.records.record_run import released_state, terminal_count
from barnabas.server.share.records.record_state import RecordState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.server.share.records.in_flight_records import InFlightRecords
    from barnabas.server.share.records.record_run import RecordRun
    from barnabas.server.share.records.share_limits import ShareLimits

# The queue is built anew when it has this many entries, and twice as many as after the last time.
_ENTRIES_MIN = 1_000


class LockTimeouts:
    """The times at which acquisition locks of a share partition end, earliest first.

    Entries of locks that ended otherwise stay until their time.
    """

    __slots__ = ("_entries", "_entries_max", "_records")

    def __init__(self, records: InFlightRecords) -> None:
        self._records = records
        # End of the lock in ms, first and last offset.
        self._entries: list[tuple[float, int, int]] = []
        # Number of entries above which outdated entries are dropped.
        self._entries_max = _ENTRIES_MIN

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, ends_ms: float, first: int, last: int) -> None:
        """Watch the locks of a range of offsets."""
        heapq.heappush(self._entries, (ends_ms, first, last))
        if len(self._entries) > self._entries_max:
            self._drop_outdated()

    def _drop_outdated(self) -> None:
        locked = [
            (run.lock_ends_ms, run.first, run.last)
            for run in self._records.runs()
            if run.lock_ends_ms is not None
        ]
        if len(locked) < len(self._entries):
            heapq.heapify(locked)
            self._entries = locked
        # So the walk over all records costs little for each entry.
        self._entries_max = max(_ENTRIES_MIN, 2 * len(self._entries))

    @property
    def next_ms(self) -> float | None:
        """The time of the next possible timeout; None without locks."""
        return self._entries[0][0] if self._entries else None

    def expire(self, now_ms: float, limits: ShareLimits) -> list[RecordRun]:
        """Take records from their members whose locks have timed out.

        Returns:
            The records, which the caller writes. A failed write does not restore the locks.
        """
        expired: list[RecordRun] = []
        while self._entries and self._entries[0][0] <= now_ms:
            _, first, last = heapq.heappop(self._entries)
            for run in self._timed_out(first, last, now_ms):
                self._take(run, limits)
                expired.append(run)
        return expired

    def _timed_out(self, first: int, last: int, now_ms: float) -> Iterator[RecordRun]:
        """Yield acquired records of a range whose locks have timed out."""
        start = self._records.start_offset
        for batch in self._records.overlapping(first, last):
            if batch.first < start <= batch.last and (
                batch.is_by_offset or batch.whole.state is RecordState.ACQUIRED
            ):
                batch.runs_in(start, batch.last)
            for run in list(batch.runs):
                if run.last < first or run.first > last or run.state is not RecordState.ACQUIRED:
                    continue
                if run.lock_ends_ms is not None and run.lock_ends_ms <= now_ms:
                    yield run

    def _take(self, run: RecordRun, limits: ShareLimits) -> None:
        records = self._records
        if run.last < records.start_offset:
            run.time_out(RecordState.ARCHIVED)
            return
        run.is_rejected = False
        run.time_out(released_state(run.delivery_count, limits))
        if run.state is RecordState.AVAILABLE:
            records.has_available = True
        records.delivery_complete_count += terminal_count(run, records.start_offset)
