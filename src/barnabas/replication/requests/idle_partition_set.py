"""Idle partitions of a fetch session, which fetches skip (KIP-227).

In Kafka, each fetch of a session checks all partitions of the session. Here, a fetch skips *idle*
partitions. A partition is idle if the client has the whole log, and has received the current high
watermark and log start offset. Followers and consumers have further conditions, in
`FollowerIdlePartitions` and `ConsumerIdlePartitions`. Other partitions are *active*. Each change of
a partition checks the operations that wait for it, and makes it active. A request that names the
partition also makes it active.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import islice
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from barnabas.replication.partition.leader_role import LeaderRole
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import FetchResult
    from barnabas.replication.requests.delayed_fetch import DelayedFetch
    from barnabas.replication.requests.session_partition import SessionKey, SessionPartition
    from barnabas.storage.topic_partition import TopicPartition


class Registry(Protocol):
    """Finds the sessions that are notified when a partition changes, and serves their lookups."""

    # The online partitions of this broker.
    online: Mapping[TopicPartition, Partition]
    # Partitions that followers must fetch again.
    awaited: Container[TopicPartition]

    def watch(self, key: TopicPartition, session: IdlePartitionSet) -> None:
        """Register a session in which the partition became idle."""
        ...

    def forget(self, key: TopicPartition, session: IdlePartitionSet) -> None:
        """Remove a session in which the partition is no longer idle."""
        ...

    def broker_epoch(self, broker_id: int) -> int | None:
        """Return the epoch of the broker's registration, or None if it is not registered."""
        ...

    def count_fetches(self, counts: Mapping[str, int]) -> None:
        """Count fetched partitions, given their number per topic."""
        ...

    def add_to_fetch(self, operation: DelayedFetch, entry: SessionPartition) -> None:
        """Add a changed partition to a pending fetch."""
        ...


class IdlePartitionSet(ABC):
    """The idle partitions of one session."""

    __slots__ = ("_active", "_counts", "_is_closed", "_partitions", "_registry", "operation")

    def __init__(self, registry: Registry, active: dict[SessionKey, SessionPartition]) -> None:
        """Create a session without idle partitions.

        Args:
            registry: the registry of the sessions per partition.
            active: the session's other partitions; all of them at first.
        """
        self._registry = registry
        self._active = active
        # The idle partitions, least recently checked first. Disjoint from `active`.
        self._partitions: dict[TopicPartition, SessionPartition] = {}
        # Number of idle partitions per topic, for the fetch meters.
        self._counts: dict[str, int] = {}
        # Set by `close`; never reset. The last response may follow later.
        self._is_closed = False
        # The session's pending fetch, or None.
        self.operation: DelayedFetch | None = None

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def topics(self) -> list[str]:
        """The topics of the idle partitions."""
        return list(self._counts)

    @abstractmethod
    def begin_fetch(self, now_ms: float, replica_epoch: int) -> None:
        """Start a fetch of the client. Partitions named in the request are active already.

        Args:
            now_ms: the monotonic time.
            replica_epoch: the epoch of the follower's registration; -1 from consumers.
        """

    @abstractmethod
    def _is_idle(self, entry: SessionPartition, partition: Partition, leader: LeaderRole) -> bool:
        """Whether a fetch of the partition has no effect on either side until a change."""

    def _on_idle(self, leader: LeaderRole) -> None:
        """Note that a partition with that leader became idle."""
        return

    def _on_active(self, key: TopicPartition) -> None:
        """Note that a partition is no longer idle."""
        return

    def maybe_mark_idle(self, entry: SessionPartition, result: FetchResult) -> bool:
        """Make the partition idle if the client has all of its state after `result`.

        Returns:
            Whether the partition became idle.
        """
        key = entry.where.topic_partition
        if result.position is None or len(result.records) > 0 or key in self._partitions:
            return False
        if self._is_closed:
            return False
        partition = self._registry.online.get(key)
        leader = None if partition is None else partition.leader
        if (
            partition is None
            or leader is None
            or partition.log.log_start_offset != entry.log_start_offset
            or not self._is_idle(entry, partition, leader)
        ):
            return False
        entry.position = result.position
        del self._active[entry.key]
        self._partitions[key] = entry
        self._counts[key.topic] = self._counts.get(key.topic, 0) + 1
        self._registry.watch(key, self)
        self._on_idle(leader)
        return True

    def touch(self, entry: SessionPartition) -> None:
        """Make the partition of `entry` active, since a request names it."""
        key = entry.where.topic_partition
        if self._partitions.get(key) is entry:
            self.activate(key)

    def activate(self, key: TopicPartition) -> None:
        """Make a changed partition active, and add it to the pending fetch."""
        entry = self._leave(key)
        self._active[entry.key] = entry
        if self.operation is not None:
            self._registry.add_to_fetch(self.operation, entry)

    def activate_topic(self, topic: str) -> None:
        """Make all partitions of a topic active."""
        for key in [each for each in self._partitions if each.topic == topic]:
            self.activate(key)

    def close(self) -> None:
        """End the session and remove its registrations."""
        self._is_closed = True
        for key in list(self._partitions):
            self._leave(key)

    def _activate_first(self, count: int) -> None:
        for key in list(islice(self._partitions, count)):
            self.activate(key)

    def _leave(self, key: TopicPartition) -> SessionPartition:
        entry = self._partitions.pop(key)
        left = self._counts[key.topic] - 1
        if left:
            self._counts[key.topic] = left
        else:
            del self._counts[key.topic]
        self._registry.forget(key, self)
        self._on_active(key)
        return entry
