"""The state machine of a share partition: acquire, acknowledge, release, time out (KIP-932).

It has no I/O. The caller passes the time, writes changed states to the share coordinator, and then
ends the changes.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import msgspec

from barnabas.server.share.records.acknowledgement import Acknowledgement, release_member
from barnabas.server.share.records.acquisition import (
    AcquireRequest,
    Acquisition,
    aborted_ranges,
    without_ranges,
)
from barnabas.server.share.records.in_flight_records import InFlightRecords
from barnabas.server.share.records.record_states import RecordState, released_state, terminal_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.server.share.group_settings import ShareLimits
    from barnabas.server.share.records.acknowledgement import AcknowledgedBatch, Refusal
    from barnabas.server.share.records.acquisition import AcquiredRange, FetchedBatch
    from barnabas.server.share.records.in_flight_records import StoredBatch
    from barnabas.server.share.records.record_states import RecordRun, StateChange
    from barnabas.storage.results import AbortedTransaction


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


class MemberRequest(msgspec.Struct, frozen=True):
    """The part of a ShareFetch that applies to all its share partitions."""

    member_id: str
    acquire_mode: int
    batch_size: int


class FetchedRecords(msgspec.Struct, frozen=True):
    """The record batches that a read of the log has returned."""

    # Where the log was read.
    fetch_offset: int
    batches: Sequence[FetchedBatch]
    # Aborted transactions for read_committed groups.
    aborted: Sequence[AbortedTransaction] = ()


class ShareRecords:
    """All records of a share partition that are in flight."""

    __slots__ = ("_timeouts", "in_flight")

    def __init__(self, start_offset: int, stored: Iterable[StoredBatch] = ()) -> None:
        """Load the state that the share coordinator has.

        Raises:
            ValueError: the state is invalid.
        """
        self.in_flight = InFlightRecords.load(start_offset, stored)
        self._timeouts = LockTimeouts(self.in_flight)

    def acquire(
        self,
        request: MemberRequest,
        records_max: int,
        fetched: FetchedRecords,
        limits: ShareLimits,
        now_ms: float,
    ) -> list[AcquiredRange]:
        """Acquire fetched records for a member and lock them.

        Args:
            request: the member and its options.
            records_max: maximum number of records.
            fetched: the records.
            limits: the configuration of the group.
            now_ms: current time of the monotonic clock.

        Returns:
            The acquired offsets without those of aborted transactions, in order.
        """
        lock_ends_ms = now_ms + limits.lock_duration_ms
        acquired = Acquisition(
            self.in_flight,
            AcquireRequest(
                request.member_id,
                request.acquire_mode,
                request.batch_size,
                records_max,
                fetched.fetch_offset,
                lock_ends_ms,
            ),
            fetched.batches,
            limits,
        ).run()
        if not acquired:
            return acquired
        self._timeouts.add(lock_ends_ms, acquired[0].first, acquired[-1].last)
        if not fetched.aborted:
            return acquired
        removed = aborted_ranges(fetched.batches, fetched.aborted)
        self.in_flight.archive_aborted(removed)
        return without_ranges(acquired, removed)

    def acknowledge(
        self,
        member_id: str,
        batches: Sequence[AcknowledgedBatch],
        limits: ShareLimits,
        now_ms: float,
    ) -> StateChange | Refusal:
        """Acknowledge records of a member. A refusal changes no state.

        Returns:
            The change, which is empty if locks were only renewed.
        """
        lock_ends_ms = now_ms + limits.lock_duration_ms
        acknowledgement = Acknowledgement(self.in_flight, member_id, lock_ends_ms, limits)
        result = acknowledgement.run(batches)
        for first, last in acknowledgement.renewed:
            self._timeouts.add(lock_ends_ms, first, last)
        return result

    def release_member(self, member_id: str, limits: ShareLimits) -> StateChange:
        """Release all records of a member whose session has ended."""
        return release_member(self.in_flight, member_id, limits)

    def end_change(
        self, change: StateChange, is_written: bool, now_ms: float, limits: ShareLimits
    ) -> bool:
        """End a change after its write. Return whether the start offset moved."""
        return self.in_flight.end_change(change, is_written, now_ms, limits)

    @property
    def next_timeout_ms(self) -> float | None:
        """The time of the next possible timeout of a lock; None without locks."""
        return self._timeouts.next_ms

    def expire(self, now_ms: float, limits: ShareLimits) -> list[RecordRun]:
        """Take records from their members whose locks have timed out, and return them."""
        return self._timeouts.expire(now_ms, limits)
