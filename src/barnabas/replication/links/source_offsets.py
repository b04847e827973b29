"""The source of a mirror as its leader knows it, for special timestamps of ListOffsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.results import (
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    ListOffsetResult,
)

if TYPE_CHECKING:
    from barnabas.replication.links.mirror_replicas import Mirror
    from barnabas.replication.partition.partition import Partition
    from barnabas.storage.topic_partition import TopicPartition

# Of mirrors of another cluster's partitions: the source's high watermark with the time of the last
# response, and the number of missing records with the time when there were none. Far from Kafka's
# special timestamps, so that Kafka may add more.
SOURCE_END = -1001
SOURCE_LAG = -1002
# Of mirrors that are promoted: how much of the source is left, see `_remains`.
SOURCE_REMAINS = -1003
# Of mirrors that are not fetched: the number of records and markers that are not committed here, or
# that belong to open transactions.
MIRROR_UNCOMMITTED = -1004
# Of partitions of `__consumer_offsets`: when links have copied the offsets of its groups.
GROUPS_COPIED = -1011
LINK_TIMESTAMPS = (SOURCE_END, SOURCE_LAG, SOURCE_REMAINS, MIRROR_UNCOMMITTED, GROUPS_COPIED)


class LinkSources:
    """What this broker knows of the sources of links. Moved by the links."""

    __slots__ = ("copies", "mirrors", "promoting", "read_only")

    def __init__(self) -> None:
        # The mirrors of other clusters' partitions that this broker leads.
        self.mirrors: dict[TopicPartition, Mirror] = {}
        # By partition of `__consumer_offsets` and link: when the link copied the offsets of its
        # groups (wall clock, ms).
        self.copies: dict[TopicPartition, dict[str, int]] = {}
        # The topics that only links write to, here and in the registry of partitions.
        self.read_only: set[str] = set()
        # The mirror topics to which no link appends any more.
        self.promoting: frozenset[str] = frozenset()

    def find(self, partition: Partition, timestamp: int) -> ListOffsetResult:
        """Return what this broker knows, for one of LINK_TIMESTAMPS.

        A partition without a link has the error of timestamps that brokers do not know.
        """
        key = partition.topic_partition
        copies, mirror = self.copies.get(key), self.mirrors.get(key)
        if timestamp == SOURCE_REMAINS and key.topic in self.promoting:
            return _remains(partition)
        if timestamp == MIRROR_UNCOMMITTED and mirror is None and key.topic in self.read_only:
            log = partition.log
            count = log.log_end_offset - log.last_stable_offset
            return ListOffsetResult(ErrorCode.NONE, UNKNOWN_OFFSET, count)
        if timestamp == GROUPS_COPIED and copies:
            # If several links copy to the partition, the oldest copy counts.
            return ListOffsetResult(
                ErrorCode.NONE, min(copies.values()), len(copies), UNKNOWN_EPOCH
            )
        if timestamp in (SOURCE_END, SOURCE_LAG) and mirror is not None:
            return _mirror_offset(mirror, timestamp)
        return ListOffsetResult(ErrorCode.UNSUPPORTED_VERSION)


def _mirror_offset(mirror: Mirror, timestamp: int) -> ListOffsetResult:
    """Return what is known for SOURCE_END or SOURCE_LAG.

    The leader epoch of the result is the source's epoch of the last batch.
    """
    epoch = UNKNOWN_EPOCH if mirror.source_epoch is None else mirror.source_epoch
    if timestamp == SOURCE_END:
        return ListOffsetResult(ErrorCode.NONE, mirror.fetched_ms, mirror.source_end, epoch)
    lag = UNKNOWN_OFFSET if mirror.lag is None else mirror.lag
    return ListOffsetResult(ErrorCode.NONE, mirror.caught_up_ms, lag, epoch)


def _remains(partition: Partition) -> ListOffsetResult:
    """Return how many facts of the source keep a mirror from becoming an ordinary topic.

    These are open transactions, markers without all in-sync replicas, and producers. The offset of
    the result is 0 if the topic may become an ordinary one. A leader that does not know yet that
    the mirror is promoted may still append records of the source, so its result is an error.
    """
    log = partition.log
    state = log.producer_state
    transactions = state.transactions
    count = len(transactions.ongoing) + len(transactions.unreplicated) + len(state.entries)
    if log.high_watermark != log.log_end_offset:
        count += 1
    return ListOffsetResult(ErrorCode.NONE, UNKNOWN_OFFSET, count)
