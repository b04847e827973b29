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
    from collections.abc import Mapping

    from barnabas.replication.links.mirror_replicas import Mirror

# Of mirrors of another cluster's partitions: the source's high watermark with the time of the last
# response, and the number of missing records with the time when there were none. Far from Kafka's
# special timestamps, so that Kafka may add more.
SOURCE_END = -1001
SOURCE_LAG = -1002
# Of partitions of `__consumer_offsets`: when links have copied the offsets of its groups.
GROUPS_COPIED = -1011
MIRROR_TIMESTAMPS = (SOURCE_END, SOURCE_LAG, GROUPS_COPIED)


def mirror_offset(
    mirror: Mirror | None, timestamp: int, copies: Mapping[str, int] | None = None
) -> ListOffsetResult:
    """Return what this broker knows of a source, for one of the timestamps above.

    For SOURCE_END and SOURCE_LAG, the leader epoch of the result is the source's epoch of the last
    batch. For GROUPS_COPIED, the time is that of the link whose copy is the oldest, and the offset
    is the number of links. A partition without a link has the error of timestamps that brokers do
    not know.

    Args:
        mirror: the mirror of the partition; None if it is not mirrored now.
        timestamp: one of MIRROR_TIMESTAMPS.
        copies: when each link has copied group offsets to the partition (wall clock, ms).
    """
    if timestamp == GROUPS_COPIED and copies:
        return ListOffsetResult(ErrorCode.NONE, min(copies.values()), len(copies), UNKNOWN_EPOCH)
    if mirror is None or timestamp == GROUPS_COPIED:
        return ListOffsetResult(ErrorCode.UNSUPPORTED_VERSION)
    epoch = UNKNOWN_EPOCH if mirror.source_epoch is None else mirror.source_epoch
    if timestamp == SOURCE_END:
        return ListOffsetResult(ErrorCode.NONE, mirror.fetched_ms, mirror.source_end, epoch)
    lag = UNKNOWN_OFFSET if mirror.lag is None else mirror.lag
    return ListOffsetResult(ErrorCode.NONE, mirror.caught_up_ms, lag, epoch)
