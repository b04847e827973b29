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

# Of mirrors of another cluster's partitions: the source's high watermark with the time of the last
# response, and the number of missing records with the time when there were none. Far from Kafka's
# special timestamps, so that Kafka may add more.
SOURCE_END = -1001
SOURCE_LAG = -1002
# Of mirrors that are promoted: how much of the source is left, see `source_remains`.
SOURCE_REMAINS = -1003
MIRROR_TIMESTAMPS = (SOURCE_END, SOURCE_LAG)


def mirror_offset(mirror: Mirror | None, timestamp: int) -> ListOffsetResult:
    """Return what the leader of a mirror knows of its source, for SOURCE_END or SOURCE_LAG.

    The leader epoch of the result is the source's epoch of the last batch. A partition that is not
    mirrored now has the error of timestamps that brokers do not know.
    """
    if mirror is None:
        return ListOffsetResult(ErrorCode.UNSUPPORTED_VERSION)
    epoch = UNKNOWN_EPOCH if mirror.source_epoch is None else mirror.source_epoch
    if timestamp == SOURCE_END:
        return ListOffsetResult(ErrorCode.NONE, mirror.fetched_ms, mirror.source_end, epoch)
    lag = UNKNOWN_OFFSET if mirror.lag is None else mirror.lag
    return ListOffsetResult(ErrorCode.NONE, mirror.caught_up_ms, lag, epoch)


def source_remains(partition: Partition, *, is_promoting: bool) -> ListOffsetResult:
    """Return how many facts of the source keep a mirror from becoming an ordinary topic.

    These are open transactions, markers without all in-sync replicas, and producers. The offset of
    the result is 0 if the topic may become an ordinary one. A leader that does not know yet that
    the mirror is promoted may still append records of the source, so its result is an error.
    """
    if not is_promoting:
        return ListOffsetResult(ErrorCode.UNSUPPORTED_VERSION)
    log = partition.log
    state = log.producer_state
    transactions = state.transactions
    count = len(transactions.ongoing) + len(transactions.unreplicated) + len(state.entries)
    if log.high_watermark != log.log_end_offset:
        count += 1
    return ListOffsetResult(ErrorCode.NONE, UNKNOWN_OFFSET, count)
