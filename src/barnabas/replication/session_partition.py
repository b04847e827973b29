"""One partition of a fetch session, as the leader remembers it (KIP-227)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.replication.fetch_params import FetchPartitionData
    from barnabas.replication.results import FetchResult
    from barnabas.storage.offset_metadata import LogOffsetMetadata
    from barnabas.storage.topic_partition import TopicIdPartition

UNKNOWN = -1

# By topic id and partition where the session uses ids, else by name and partition.
SessionKey: TypeAlias = tuple[bytes | str, int]


class SessionPartition:
    """What was asked last and what was answered last."""

    __slots__ = ("asked", "high_watermark", "key", "log_start_offset", "position", "where")

    def __init__(self, key: SessionKey, where: TopicIdPartition, asked: FetchPartitionData) -> None:
        self.key = key
        self.where = where
        # The last request for it; a request that does not name it repeats this one.
        self.asked = asked
        # As answered last; -1 if never, or with an error: the next answer has it in any case.
        self.high_watermark = UNKNOWN
        self.log_start_offset = UNKNOWN
        # Where the fetch offset lies, while it is quiet.
        self.position: LogOffsetMetadata | None = None

    def has_news(self, result: FetchResult) -> bool:
        """Whether `result` must be answered: records, an error, or something that has changed."""
        return (
            len(result.records) > 0
            or result.error is not ErrorCode.NONE
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
            or result.preferred_read_replica >= 0
            or result.diverging_epoch is not None
        )

    def note(self, result: FetchResult) -> None:
        """`result` is answered.

        After an error the high watermark counts as never answered; and where the logs diverge, for
        the follower looks at nothing else of that answer.
        """
        is_unread = result.error is not ErrorCode.NONE or result.diverging_epoch is not None
        self.high_watermark = UNKNOWN if is_unread else result.high_watermark
        self.log_start_offset = result.log_start_offset
