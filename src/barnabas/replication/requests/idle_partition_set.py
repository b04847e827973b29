"""Idle partitions of a follower's fetch session, which fetches skip (KIP-227).

In Kafka, each fetch of a session checks all partitions of the session. Here, a fetch skips *idle*
partitions. A partition is idle if the follower is in the ISR, has the whole log, and has received
the current high watermark and log start offset. Other partitions are *active*. Each change of a
partition checks the operations that wait for it, and makes it active. A request that names the
partition also makes it active.

A check in Kafka also records that the follower fetched from the log end at this time. Here,
`fetched_ms` records this time for all idle partitions together.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol

from barnabas.replication.partition.replica import NEVER_MS, NO_BROKER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import FetchResult
    from barnabas.replication.requests.delayed_fetch import DelayedFetch
    from barnabas.replication.requests.session_partition import SessionKey, SessionPartition
    from barnabas.storage.topic_partition import TopicPartition

# Interval of the sweep, and its number of partitions. The sweep makes some idle partitions active,
# since retention can move a log start offset without a notification.
_SWEEP_MS = 450.0
_SWEEP_PARTITIONS = 64


class Registry(Protocol):
    """Finds the sessions that are notified when a partition changes, and serves their lookups."""

    # The online partitions of this broker.
    online: Mapping[TopicPartition, Partition]

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


class IdlePartitionSet:
    """The idle partitions of one session."""

    __slots__ = (
        "_active",
        "_counts",
        "_partitions",
        "_registry",
        "_replica_epoch",
        "_swept_ms",
        "fetched_ms",
        "operation",
        "replica_id",
    )

    def __init__(
        self,
        registry: Registry,
        replica: tuple[int, int],
        active: dict[SessionKey, SessionPartition],
    ) -> None:
        """Create a session without idle partitions.

        Args:
            registry: the registry of the sessions per partition.
            replica: the follower's broker id and the epoch of its registration.
            active: the session's other partitions; all of them at first.
        """
        self._registry = registry
        self.replica_id, self._replica_epoch = replica
        self._active = active
        # The idle partitions, least recently checked first. Disjoint from `active`.
        self._partitions: dict[TopicPartition, SessionPartition] = {}
        # Number of idle partitions per topic, for the fetch meters.
        self._counts: dict[str, int] = {}
        # Time of the follower's last fetch, in monotonic ms. It covers all idle partitions.
        self.fetched_ms = NEVER_MS
        self._swept_ms = NEVER_MS
        # The session's pending fetch, or None.
        self.operation: DelayedFetch | None = None

    def __len__(self) -> int:
        return len(self._partitions)

    def begin_fetch(self, now_ms: float, replica_epoch: int) -> None:
        """Start a fetch of the follower. Partitions named in the request are active already."""
        known_epoch = self._registry.broker_epoch(self.replica_id)
        is_outdated = known_epoch is not None and NO_BROKER_EPOCH < replica_epoch < known_epoch
        if is_outdated or replica_epoch != self._replica_epoch:
            # The broker epoch differs, for example after a restart: all partitions must check it.
            self._replica_epoch = replica_epoch
            self._activate_first(len(self._partitions))
        elif now_ms - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now_ms
            self._activate_first(_SWEEP_PARTITIONS)
        self.fetched_ms = now_ms
        self._registry.count_fetches(self._counts)

    def maybe_mark_idle(self, entry: SessionPartition, result: FetchResult) -> bool:
        """Make the partition idle if the follower has all of its state after `result`.

        Returns:
            Whether the partition became idle.
        """
        key = entry.where.topic_partition
        if result.position is None or len(result.records) > 0 or key in self._partitions:
            return False
        partition = self._registry.online.get(key)
        leader = None if partition is None else partition.leader
        if (
            partition is None
            or leader is None
            or partition.topic_id != entry.where.topic_id
            or not leader.is_idle_for(self.replica_id, entry.requested, entry.high_watermark)
            or partition.log.log_start_offset != entry.log_start_offset
        ):
            return False
        entry.position = result.position
        del self._active[entry.key]
        self._partitions[key] = entry
        self._counts[key.topic] = self._counts.get(key.topic, 0) + 1
        self._registry.watch(key, self)
        leader.remote_replicas[self.replica_id].idle_fetches = self
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

    def close(self) -> None:
        """End the session and remove its registrations."""
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
        partition = self._registry.online.get(key)
        leader = None if partition is None else partition.leader
        replica = None if leader is None else leader.remote_replicas.get(self.replica_id)
        if replica is not None and replica.idle_fetches is self:
            replica.leave_idle_set()
        return entry
