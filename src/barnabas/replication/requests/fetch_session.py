"""One incremental fetch session: the last request and response per partition (KIP-227)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.fetch_metadata import next_epoch
from barnabas.replication.partition.fetch_params import FetchPartitionData
from barnabas.replication.requests.session_partition import UNKNOWN, SessionKey, SessionPartition
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.replication.partition.results import FetchResult
    from barnabas.replication.requests.quiet_partitions import QuietPartitions
    from barnabas.replication.requests.quiet_session import QuietSession

Asked = tuple[TopicIdPartition, FetchPartitionData]
Answered = tuple[TopicIdPartition, "FetchResult"]


def size_of(where: TopicIdPartition) -> int:
    """Return the size of a session's partition, in units of about 0.5 KB.

    An invalid topic name may be 32 KB long.
    """
    return 1 + (len(where.topic) >> 8)


class FetchSession:
    """The partitions of one session, in the order in which they are read next."""

    __slots__ = (
        "_loud",
        "_partitions",
        "created_ms",
        "epoch",
        "id",
        "is_privileged",
        "last_used_ms",
        "quiet",
        "size",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, is_privileged: bool, uses_topic_ids: bool, now_ms: float
    ) -> None:
        self.id = session_id
        # Whether this is a follower's session, which is evicted last.
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        # The epoch that the next request must carry.
        self.epoch = 1
        self._partitions: dict[SessionKey, SessionPartition] = {}
        # Size of the partitions, in units of about 0.5 KB.
        self.size = 0
        # Partitions that each fetch checks: all, except the quiet ones of a follower's session.
        self._loud = self._partitions
        self.quiet: QuietSession | None = None

    def follow(self, quiet: QuietPartitions, replica_id: int, replica_epoch: int) -> None:
        """Make this a follower's session, whose quiet partitions are not checked."""
        assert not self._partitions, "before it has any"
        self._loud = {}
        self.quiet = quiet.open(replica_id, replica_epoch, self._loud)

    def close(self) -> None:
        """Release the quiet partitions at the end of the session."""
        if self.quiet is not None:
            self.quiet.close()

    def __len__(self) -> int:
        return len(self._partitions)

    def begin_fetch(self, now_ms: float, replica_epoch: int) -> None:
        """Start a request of the session. `update` has applied the partitions of the request."""
        self.epoch = next_epoch(self.epoch)
        self.last_used_ms = now_ms
        if self.quiet is not None:
            self.quiet.begin_fetch(now_ms, replica_epoch)

    def _key(self, where: TopicIdPartition) -> SessionKey:
        return (where.topic_id if self.uses_topic_ids else where.topic, where.partition)

    def update(self, asked: Iterable[Asked], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add and change the requested partitions, then remove the forgotten ones."""
        for where, data in asked:
            key = self._key(where)
            known = self._partitions.get(key)
            if known is None:
                self._partitions[key] = self._loud[key] = SessionPartition(key, where, data)
                self.size += size_of(where)
            else:
                if self.quiet is not None:
                    self.quiet.touch(known)
                if known.asked.current_leader_epoch != data.current_leader_epoch:
                    # The follower drops the data that it requested in an earlier leader epoch.
                    known.high_watermark = UNKNOWN
                self.size += size_of(where) - size_of(known.where)
                known.where = where
                known.asked = data
        for where in forgotten:
            key = self._key(where)
            gone = self._partitions.pop(key, None)
            if gone is None:
                continue
            self.size -= size_of(gone.where)
            if self.quiet is not None:
                self.quiet.touch(gone)
                del self._loud[key]

    def partitions(self) -> list[Asked]:
        """Return the partitions to check, in order."""
        return [(each.where, each.asked) for each in self._loud.values()]

    def resolve(self, names: dict[bytes, str]) -> None:
        """Set the topic names of partitions whose topic id was unknown before."""
        for each in self._loud.values():
            if not each.where.topic and each.where.topic_id in names:
                # The size does not change, since names of existing topics are short.
                each.where = TopicIdPartition(
                    each.where.topic_id, names[each.where.topic_id], each.where.partition
                )

    def unresolved(self) -> list[bytes]:
        """Return the ids of topics whose name is not known."""
        missing = [each.where.topic_id for each in self._loud.values() if not each.where.topic]
        return list(dict.fromkeys(missing)) if self.uses_topic_ids else []

    def note_all(self, results: Iterable[Answered]) -> None:
        """Record the results of a full response."""
        for where, result in results:
            partition = self._partitions.get(self._key(where))
            if partition is not None:
                partition.note(result)
                if self.quiet is not None:
                    self.quiet.maybe_hush(partition, result)

    def keep_news(self, results: Iterable[Answered]) -> list[Answered]:
        """Return the changed results for an incremental response.

        Partitions with records move to the end of the order. Thus a busy partition does not starve
        the later ones under the byte limit of the response.
        """
        news: list[Answered] = []
        for where, result in results:
            key = self._key(where)
            partition = self._loud.get(key)
            if partition is None:
                continue
            if partition.has_news(result):
                partition.note(result)
                news.append((where, result))
                if len(result.records) > 0:
                    self._loud[key] = self._loud.pop(key)
                    continue
            if self.quiet is not None:
                self.quiet.maybe_hush(partition, result)
        return news
