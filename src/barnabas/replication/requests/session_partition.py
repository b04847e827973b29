"""One partition of a fetch session, as the leader caches it (KIP-227)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.replication.partition.fetch_params import FetchPartitionData
    from barnabas.replication.partition.results import FetchResult
    from barnabas.storage.results import LogOffsetMetadata
    from barnabas.storage.topic_partition import TopicIdPartition

UNKNOWN = -1

# (topic id, partition) in sessions with topic ids, else (topic name, partition).
SessionKey: TypeAlias = tuple[bytes | str, int]


class SessionPartition:
    """The last request and the last response for one partition."""

    __slots__ = ("high_watermark", "key", "log_start_offset", "position", "requested", "where")

    def __init__(
        self, key: SessionKey, where: TopicIdPartition, requested: FetchPartitionData
    ) -> None:
        self.key = key
        self.where = where
        # The last request. A request that does not name the partition repeats it.
        self.requested = requested
        # Values in the last response. -1 before the first response or after an error: then the next
        # response includes the partition.
        self.high_watermark = UNKNOWN
        self.log_start_offset = UNKNOWN
        # Log position of the fetch offset while the partition is idle.
        self.position: LogOffsetMetadata | None = None

    def has_changes(self, result: FetchResult) -> bool:
        """Whether the response must include `result`: records, an error or a changed value."""
        return (
            len(result.records) > 0
            or result.error is not ErrorCode.NONE
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
            or result.preferred_read_replica >= 0
            or result.diverging_epoch is not None
        )

    def note(self, result: FetchResult) -> None:
        """Record that the response includes `result`.

        The high watermark becomes unknown after an error or a diverging epoch, since the follower
        ignores the other fields of such a response.
        """
        is_unread = result.error is not ErrorCode.NONE or result.diverging_epoch is not None
        self.high_watermark = UNKNOWN if is_unread else result.high_watermark
        self.log_start_offset = result.log_start_offset
