"""The source of a mirror as its leader knows it, for two timestamps of ListOffsets."""

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

# Of mirrors of another cluster's partitions: the source's high watermark with the time of the last
# response, and the number of missing records with the time when there were none. Far from Kafka's
# special timestamps, so that Kafka may add more.
SOURCE_END = -1001
SOURCE_LAG = -1002
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
