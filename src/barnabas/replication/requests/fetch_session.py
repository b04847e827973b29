"""One incremental fetch session: the last request and response per partition (KIP-227)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.fetch_session_handler import next_epoch
from barnabas.replication.partition.fetch_params import FetchPartitionData
from barnabas.replication.requests.session_partition import UNKNOWN, SessionKey, SessionPartition
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.replication.partition.results import FetchResult
    from barnabas.replication.requests.idle_partition_set import IdlePartitionSet

PartitionRequest = tuple[TopicIdPartition, FetchPartitionData]
PartitionResult = tuple[TopicIdPartition, "FetchResult"]


def size_of(where: TopicIdPartition) -> int:
    """Return the size of a session's partition, in units of about 0.5 KB.

    An invalid topic name may be 32 KB long.
    """
    return 1 + (len(where.topic) >> 8)


class FetchSession:
    """The partitions of one session, in the order in which they are read next."""

    __slots__ = (
        "_active",
        "_partitions",
        "created_ms",
        "epoch",
        "id",
        "idle",
        "is_privileged",
        "last_used_ms",
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
        # Partitions that each fetch checks: all, except the idle ones.
        self._active = self._partitions
        self.idle: IdlePartitionSet | None = None

    def skip_idle(
        self, open_set: Callable[[dict[SessionKey, SessionPartition]], IdlePartitionSet | None]
    ) -> None:
        """Keep idle partitions apart from now on. All partitions are active at first.

        Args:
            open_set: returns the idle part of the session, given the active partitions. None if the
                session must check all partitions.
        """
        active = dict(self._partitions)
        self.idle = open_set(active)
        if self.idle is not None:
            self._active = active

    def close(self) -> None:
        """Release the idle partitions at the end of the session."""
        if self.idle is not None:
            self.idle.close()

    def __len__(self) -> int:
        return len(self._partitions)

    def begin_fetch(self, now_ms: float, replica_epoch: int) -> None:
        """Start a request of the session. `update` has applied the partitions of the request."""
        self.epoch = next_epoch(self.epoch)
        self.last_used_ms = now_ms
        if self.idle is not None:
            self.idle.begin_fetch(now_ms, replica_epoch)

    def _key(self, where: TopicIdPartition) -> SessionKey:
        return (where.topic_id if self.uses_topic_ids else where.topic, where.partition)

    def update(
        self, requested: Iterable[PartitionRequest], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Add and change the requested partitions, then remove the forgotten ones."""
        for where, data in requested:
            key = self._key(where)
            known = self._partitions.get(key)
            if known is None:
                self._partitions[key] = self._active[key] = SessionPartition(key, where, data)
                self.size += size_of(where)
            else:
                if self.idle is not None:
                    self.idle.touch(known)
                if known.requested.current_leader_epoch != data.current_leader_epoch:
                    # The follower drops the data that it requested in an earlier leader epoch.
                    known.high_watermark = UNKNOWN
                if where != known.where:
                    self.size += size_of(where) - size_of(known.where)
                    known.where = where
                known.requested = data
        for where in forgotten:
            key = self._key(where)
            removed = self._partitions.pop(key, None)
            if removed is None:
                continue
            self.size -= size_of(removed.where)
            if self.idle is not None:
                self.idle.touch(removed)
                del self._active[key]

    def partitions(self) -> list[PartitionRequest]:
        """Return the partitions to check, in order."""
        return [(each.where, each.requested) for each in self._active.values()]

    def resolve(self, names: dict[bytes, str]) -> None:
        """Set the topic names of partitions whose topic id was unknown before."""
        for each in self._active.values():
            if not each.where.topic and each.where.topic_id in names:
                # The size does not change, since names of existing topics are short.
                each.where = TopicIdPartition(
                    each.where.topic_id, names[each.where.topic_id], each.where.partition
                )

    def unresolved(self) -> list[bytes]:
        """Return the ids of topics whose name is not known."""
        missing = [each.where.topic_id for each in self._active.values() if not each.where.topic]
        return list(dict.fromkeys(missing)) if missing and self.uses_topic_ids else []

    def note_all(self, results: Iterable[PartitionResult]) -> None:
        """Record the results of a full response."""
        for where, result in results:
            partition = self._partitions.get(self._key(where))
            if partition is not None:
                partition.note(result)
                if self.idle is not None:
                    self.idle.maybe_mark_idle(partition, result)

    def keep_changed(self, results: Iterable[PartitionResult]) -> list[PartitionResult]:
        """Return the changed results for an incremental response.

        Partitions with records move to the end of the order. Thus a busy partition does not starve
        the later ones under the byte limit of the response.
        """
        changed: list[PartitionResult] = []
        for where, result in results:
            key = self._key(where)
            partition = self._active.get(key)
            if partition is None:
                continue
            if partition.has_changes(result):
                partition.note(result)
                changed.append((where, result))
                if len(result.records) > 0:
                    self._active[key] = self._active.pop(key)
                    continue
            if self.idle is not None:
                self.idle.maybe_mark_idle(partition, result)
        return changed
