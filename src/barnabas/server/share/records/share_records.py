"""The state machine of a share partition: acquire, acknowledge, release, time out (KIP-932).

It has no I/O. The caller passes the time, writes changed states to the share coordinator, and then
ends the changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.server.share.records.aborted_records import aborted_ranges, without_ranges
from barnabas.server.share.records.acknowledgement import Acknowledgement, release_member
from barnabas.server.share.records.acquisition import AcquireRequest, Acquisition
from barnabas.server.share.records.in_flight_records import InFlightRecords
from barnabas.server.share.records.lock_timeouts import LockTimeouts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.server.share.records.acknowledgement import AcknowledgedBatch, Refusal
    from barnabas.server.share.records.acquisition import AcquiredRange, FetchedBatch
    from barnabas.server.share.records.in_flight_records import StoredBatch
    from barnabas.server.share.records.record_run import RecordRun, StateChange
    from barnabas.server.share.records.share_limits import ShareLimits
    from barnabas.storage.results import AbortedTransaction


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
