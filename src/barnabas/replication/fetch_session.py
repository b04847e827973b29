"""One incremental fetch session: what was asked last and what was answered last (KIP-227)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetch_params import FetchPartitionData
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.replication.results import FetchResult

NO_SESSION = 0
# Epochs of a request: the first one of a session to be, and the last one or none at all.
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

_EPOCH_MAX = 0x7FFF_FFFF
_UNKNOWN = -1

Asked = tuple[TopicIdPartition, FetchPartitionData]
Answered = tuple[TopicIdPartition, "FetchResult"]
# By topic id and partition where the session uses ids, else by name and partition.
_Key = tuple[bytes | str, int]


def next_epoch(epoch: int) -> int:
    """Epochs run from 1 to 2^31 - 1 and round again."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class _SessionPartition:
    """A partition of a session."""

    __slots__ = ("asked", "high_watermark", "log_start_offset", "where")

    def __init__(self, where: TopicIdPartition, asked: FetchPartitionData) -> None:
        self.where = where
        # The last request for it; a request that does not name it repeats this one.
        self.asked = asked
        # As answered last; -1 if never, or with an error: the next answer has it in any case.
        self.high_watermark = _UNKNOWN
        self.log_start_offset = _UNKNOWN

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
        self.high_watermark = _UNKNOWN if is_unread else result.high_watermark
        self.log_start_offset = result.log_start_offset


class FetchSession:
    """The partitions of one fetcher, in the order in which they are next to be read."""

    __slots__ = (
        "_partitions",
        "created_ms",
        "epoch",
        "id",
        "is_privileged",
        "last_used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, is_privileged: bool, uses_topic_ids: bool, now_ms: float
    ) -> None:
        self.id = session_id
        # Followers' sessions give way last.
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        # The epoch that the next request must carry.
        self.epoch = 1
        self._partitions: dict[_Key, _SessionPartition] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def _key(self, where: TopicIdPartition) -> _Key:
        return (where.topic_id if self.uses_topic_ids else where.topic, where.partition)

    def update(self, asked: Iterable[Asked], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add and change the asked partitions, then drop the forgotten ones."""
        for where, data in asked:
            key = self._key(where)
            known = self._partitions.get(key)
            if known is None:
                self._partitions[key] = _SessionPartition(where, data)
            else:
                if known.asked.current_leader_epoch != data.current_leader_epoch:
                    # A follower drops what it asked for in an earlier leader epoch.
                    known.high_watermark = _UNKNOWN
                known.where = where
                known.asked = data
        for where in forgotten:
            self._partitions.pop(self._key(where), None)

    def partitions(self) -> list[Asked]:
        """All of them, in order."""
        return [(each.where, each.asked) for each in self._partitions.values()]

    def resolve(self, names: dict[bytes, str]) -> None:
        """Give partitions whose topic was unknown the name they have by now."""
        for each in self._partitions.values():
            if not each.where.topic and each.where.topic_id in names:
                each.where = TopicIdPartition(
                    each.where.topic_id, names[each.where.topic_id], each.where.partition
                )

    def unresolved(self) -> list[bytes]:
        """Ids of topics whose name is not known."""
        missing = [
            each.where.topic_id for each in self._partitions.values() if not each.where.topic
        ]
        return list(dict.fromkeys(missing)) if self.uses_topic_ids else []

    def note_all(self, results: Iterable[Answered]) -> None:
        """A full answer is given."""
        for where, result in results:
            partition = self._partitions.get(self._key(where))
            if partition is not None:
                partition.note(result)

    def keep_news(self, results: Iterable[Answered]) -> list[Answered]:
        """What an incremental answer has; partitions with records go to the end of the order.

        So one that always has data does not starve those behind it under the limit of the answer.
        """
        news: list[Answered] = []
        for where, result in results:
            key = self._key(where)
            partition = self._partitions.get(key)
            if partition is None or not partition.has_news(result):
                continue
            partition.note(result)
            news.append((where, result))
            if len(result.records) > 0:
                self._partitions[key] = self._partitions.pop(key)
        return news
