"""Counters and distributions of share fetches, acknowledgements and share partitions (KIP-932).

Kafka's threads lock a share partition while they read its log and acquire records. Here, one turn
of the event loop does both, so a fetch never waits for a lock. The times are measured alike.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from barnabas.metrics.measurements import Histogram
from barnabas.protocol.errors import ErrorCode
from barnabas.server.share.records.record_states import ACCEPT, REJECT, RELEASE, RENEW

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.runtime.clock import Clock
    from barnabas.server.share.records.acknowledgement import AcknowledgedBatch
    from barnabas.server.share.records.acquisition import AcquiredRange

_PERCENT = 100.0


class PartitionMeters:
    """Distributions of one share partition, which its first fetch creates."""

    __slots__ = ("_released_ms", "batch_records", "lock_ms", "lock_percent")

    def __init__(self, now_ms: float) -> None:
        # Records of a batch when it is acquired for the first time.
        self.batch_records = Histogram()
        # How long a fetch reads the log and acquires records, ms.
        self.lock_ms = Histogram()
        # The same as a percentage of the time since the end of the previous read.
        self.lock_percent = Histogram()
        # End of the previous read (monotonic, ms).
        self._released_ms = now_ms

    def count_read(self, begun_ms: float, ended_ms: float) -> None:
        """Count a read of the log, with the acquisition of its records."""
        self.lock_ms.update(ended_ms - begun_ms)
        total_ms = ended_ms - self._released_ms
        if total_ms > 0:
            self.lock_percent.update(_PERCENT * (ended_ms - begun_ms) / total_ms)
        self._released_ms = ended_ms

    def count_acquired(self, acquired: Iterable[AcquiredRange]) -> None:
        """Count batches that are acquired for the first time."""
        for each in acquired:
            if each.delivery_count == 1:
                self.batch_records.update(each.last - each.first + 1)


class GroupMeters(msgspec.Struct):
    """Distributions of the fetches of one group."""

    # Time from the request, or from the previous read, until partitions are read, ms.
    acquire_ms: Histogram = msgspec.field(default_factory=Histogram)
    # Percentage of the requested partitions that a completed fetch has read.
    fetch_percent: Histogram = msgspec.field(default_factory=Histogram)


class ShareMeters:
    """The distributions of all groups on this broker."""

    def __init__(self) -> None:
        # By group. A group without sessions is removed, so that sessions bound their number.
        self.groups: dict[str, GroupMeters] = {}
        # Time until the state of a share partition is loaded, ms.
        self.load_ms = Histogram()

    def of_group(self, group_id: str) -> GroupMeters:
        """Return the distributions of a group; create them at the first call."""
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = GroupMeters()
        return found


class FetchMeters:
    """Measures one share fetch."""

    __slots__ = ("_begun_ms", "_clock", "_group", "_requested", "_waiting_since_ms")

    def __init__(self, clock: Clock, group: GroupMeters, requested: int) -> None:
        """Begin to measure.

        Args:
            clock: measures the times.
            group: the distributions of the group.
            requested: number of requested partitions.
        """
        self._clock = clock
        self._group = group
        self._requested = requested
        self._waiting_since_ms = clock.monotonic_ms()
        # Begin of the current read.
        self._begun_ms = self._waiting_since_ms

    def begin_read(self) -> None:
        """Note that the log is read now."""
        self._begun_ms = self._clock.monotonic_ms()

    def end_read(self, partitions: Sequence[PartitionMeters]) -> None:
        """Count a read of partitions, whether or not it satisfied the fetch."""
        if not partitions:
            return
        now_ms = self._clock.monotonic_ms()
        for each in partitions:
            each.count_read(self._begun_ms, now_ms)
        self._group.acquire_ms.update(self._begun_ms - self._waiting_since_ms)
        self._waiting_since_ms = now_ms

    def complete(self, partitions_read: int) -> None:
        """Count a completed fetch."""
        if self._requested:
            self._group.fetch_percent.update(_PERCENT * partitions_read / self._requested)


# Types of acknowledgements as labels.
_TYPE_NAMES = {ACCEPT: "Accept", RELEASE: "Release", REJECT: "Reject", RENEW: "Renew"}


class ShareCounts(msgspec.Struct):
    """Counters since the start."""

    # Fetches that timed out.
    expired_fetches: int = 0
    # Acknowledgements of single share partitions.
    acknowledgements: dict[str, int] = msgspec.field(
        default_factory=lambda: {"written": 0, "refused": 0}
    )

    # Acknowledged records by type.
    records: dict[str, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys(_TYPE_NAMES.values(), 0)
    )

    def count_expired_fetch(self) -> None:
        """Count a fetch that timed out."""
        self.expired_fetches += 1

    def count_records(self, batches: Iterable[AcknowledgedBatch]) -> None:
        """Count the records of acknowledgements, whether these are refused or not."""
        for batch in batches:
            if len(batch.types) == 1:
                counted = {batch.types[0]: batch.last - batch.first + 1}
            else:
                counted = dict(Counter(batch.types))
            for acknowledge_type, count in counted.items():
                name = _TYPE_NAMES.get(acknowledge_type)
                if name is not None:
                    self.records[name] += count

    def count_acknowledgements(self, results: Iterable[tuple[ErrorCode, str | None]]) -> None:
        """Count the results of a request."""
        for error, _ in results:
            self.acknowledgements["written" if error is ErrorCode.NONE else "refused"] += 1
