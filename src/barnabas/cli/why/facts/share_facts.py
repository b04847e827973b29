"""The facts about a share group that `why` uses (KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.share_groups import ShareOffset, ShareState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.cli.transactions.held_back import HeldBack
    from barnabas.cli.why.facts.log_offsets import LogOffsets
    from barnabas.client.admin.group_descriptions import GroupMember
    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["ShareFacts", "ShareLimits", "SharePartitionFacts", "ShareReading", "processed_between"]


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """The configs of a share group that decide about its deliveries."""

    # share.delivery.count.limit, share.record.lock.duration.ms, share.partition.max.record.locks.
    delivery_count: int
    lock_duration_ms: int
    record_locks: int
    # Whether share.isolation.level is read_committed.
    is_read_committed: bool = False


@dataclass(frozen=True, slots=True)
class ShareReading:
    """One measurement of a share partition."""

    # What the group coordinator reports; None if it reports nothing.
    offset: ShareOffset | ClientError | None
    # What the share coordinator has stored about the records.
    state: ShareState | ClientError

    @property
    def start_offset(self) -> int | None:
        """The first record that is not processed; None while nothing is stored."""
        if isinstance(self.state, ShareState):
            start = self.state.start_offset
        elif isinstance(self.offset, ShareOffset):
            start = self.offset.start_offset
        else:
            return None
        return start if start >= 0 else None

    @property
    def lag(self) -> int | None:
        """Number of records that are not processed; None if it is unknown."""
        if not isinstance(self.offset, ShareOffset) or self.offset.lag < 0:
            return None
        return self.offset.lag

    @property
    def processed(self) -> int | None:
        """An offset that rises by one with each processed record; None if it is unknown."""
        if not isinstance(self.state, ShareState) or self.state.start_offset < 0:
            return None
        return self.state.start_offset + max(0, self.state.delivery_complete_count)


def processed_between(before: ShareReading, now: ShareReading) -> int:
    """Return the number of records that were processed between two measurements."""
    start, end = before.processed, now.processed
    if start is None or end is None:
        # Without the states, only the start offset shows progress. The first acknowledgement
        # stores it.
        start, end = before.start_offset, now.start_offset
        if start is None and end is not None:
            return 1
    return 0 if start is None or end is None else max(0, end - start)


@dataclass(frozen=True, slots=True)
class SharePartitionFacts:
    """The facts about one share partition, from two measurements."""

    partition: TopicPartition
    before: ShareReading
    now: ShareReading
    log: LogOffsets
    # The members to which the partition is assigned. Only the leader of the partition knows which
    # of them has a record.
    members: Sequence[GroupMember] = ()
    # The open transactions at the start offset of a read_committed group; None if there are none.
    held_back: HeldBack | None = None

    @property
    def lag(self) -> int | None:
        """Number of records that are not processed; None if it is unknown."""
        return self.now.lag

    @property
    def moved(self) -> int:
        """Number of records that were processed between the measurements."""
        return processed_between(self.before, self.now)


@dataclass(frozen=True, slots=True)
class ShareFacts:
    """The facts about the partitions of a share group."""

    partitions: Sequence[SharePartitionFacts]
    # None if the group's configs cannot be described.
    limits: ShareLimits | None

    @property
    def lag(self) -> int:
        """The sum over all partitions with a known lag."""
        return sum(each.lag or 0 for each in self.partitions)
