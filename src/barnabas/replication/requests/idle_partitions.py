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
from typing import TYPE_CHECKING

from barnabas.protocol.schema import ZERO_UUID
from barnabas.replication.partition.fetch_params import NO_EPOCH
from barnabas.replication.partition.replica import NEVER_MS, NO_BROKER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from barnabas.replication.partition.fetch_params import SessionKey, SessionPartition
    from barnabas.replication.partition.leader_role import LeaderRole
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import ImageBrokers
    from barnabas.replication.partition.results import FetchResult
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.replication.requests.delayed_fetch import DelayedFetch
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.purgatory import Purgatory


class IdlePartitionSet(ABC):
    """The idle partitions of one session."""

    __slots__ = ("_active", "_counts", "_is_closed", "_partitions", "_registry", "operation")

    def __init__(
        self, registry: IdlePartitionRegistry, active: dict[SessionKey, SessionPartition]
    ) -> None:
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


# Number of log start offsets that each fetch compares.
_COMPARED = 1_000


class ConsumerIdlePartitions(IdlePartitionSet):
    """The idle partitions of one consumer's session with many partitions.

    A partition is idle if its log end offset, high watermark and last stable offset equal the fetch
    offset: each request of a session may have another isolation level. Each append, new leader
    epoch and deletion makes the partition active. Retention moves log start offsets without a
    notification, so each fetch compares some of them.
    """

    __slots__ = ()

    def begin_fetch(self, now_ms: float, replica_epoch: int) -> None:
        """Make partitions active if their log start offset has moved."""
        partitions, find = self._partitions, self._registry.online.get
        for key in list(islice(partitions, _COMPARED)):
            partition = find(key)
            if partition is None or (
                partition.log.log_start_offset != partitions[key].log_start_offset
            ):
                self.activate(key)
            else:
                # Move the partition to the end, so that the next fetch compares others.
                partitions[key] = partitions.pop(key)
        self._registry.count_fetches(self._counts)

    def _is_idle(self, entry: SessionPartition, partition: Partition, leader: LeaderRole) -> bool:
        log, requested = partition.log, entry.requested
        end = requested.fetch_offset
        return (
            entry.where.topic_id in (ZERO_UUID, partition.topic_id)
            and end == log.log_end_offset == log.high_watermark == log.last_stable_offset
            and end == entry.high_watermark
            and requested.current_leader_epoch in (NO_EPOCH, leader.leader_epoch)
            and requested.last_fetched_epoch == NO_EPOCH
        )


# Interval of the sweep, and its number of partitions. The sweep makes some idle partitions active,
# since retention can move a log start offset without a notification.
_SWEEP_MS = 450.0
_SWEEP_PARTITIONS = 64


class FollowerIdlePartitions(IdlePartitionSet):
    """The idle partitions of one follower's session.

    A partition is idle only if the follower is in the ISR. A check of a partition in Kafka also
    records that the follower fetched from the log end at this time. Here, `fetched_ms` records this
    time for all idle partitions together.
    """

    __slots__ = ("_replica_epoch", "_swept_ms", "fetched_ms", "replica_id")

    def __init__(
        self,
        registry: IdlePartitionRegistry,
        replica: tuple[int, int],
        active: dict[SessionKey, SessionPartition],
    ) -> None:
        """Create a session without idle partitions.

        Args:
            registry: the registry of the sessions per partition.
            replica: the follower's broker id and the epoch of its registration.
            active: the session's other partitions; all of them at first.
        """
        super().__init__(registry, active)
        self.replica_id, self._replica_epoch = replica
        # Time of the follower's last fetch, in monotonic ms. It covers all idle partitions.
        self.fetched_ms = NEVER_MS
        self._swept_ms = NEVER_MS

    def begin_fetch(self, now_ms: float, replica_epoch: int) -> None:
        """Record the fetch, and make all partitions active that it must check."""
        if not self._partitions:
            self._replica_epoch, self.fetched_ms = replica_epoch, now_ms
            return
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

    def _is_idle(self, entry: SessionPartition, partition: Partition, leader: LeaderRole) -> bool:
        return (
            partition.topic_id == entry.where.topic_id
            and leader.is_idle_for(self.replica_id, entry.requested, entry.high_watermark)
            and partition.topic_partition not in self._registry.awaited
        )

    def _on_idle(self, leader: LeaderRole) -> None:
        leader.remote_replicas[self.replica_id].join_idle_set(self)

    def _on_active(self, key: TopicPartition) -> None:
        partition = self._registry.online.get(key)
        leader = None if partition is None else partition.leader
        replica = None if leader is None else leader.remote_replicas.get(self.replica_id)
        if replica is not None:
            replica.leave_idle_set(self)


class IdlePartitionRegistry:
    """The sessions of a broker's followers and consumers, by idle partition."""

    __slots__ = (
        "_brokers",
        "_fetches",
        "_has_selector",
        "_metrics",
        "awaited",
        "online",
        "sessions",
    )

    def __init__(
        self,
        online: Mapping[TopicPartition, Partition],
        brokers: ImageBrokers,
        fetches: Purgatory,
        metrics: ReplicaMetrics,
        *,
        has_selector: bool,
    ) -> None:
        # Whether each fetch of a consumer may be redirected to another replica.
        self._has_selector = has_selector
        # The registry's own dict.
        self.online = online
        self._brokers = brokers
        self._fetches = fetches
        self._metrics = metrics
        # Sessions in which a partition is idle. Partitions without such a session have no entry.
        self.sessions: dict[TopicPartition, list[IdlePartitionSet]] = {}
        # Partitions that followers must fetch again, which are not idle. `LeadershipChecks` sets
        # the collection, and changes it.
        self.awaited: Container[TopicPartition] = ()

    def open(
        self, replica_id: int, replica_epoch: int, active: dict[SessionKey, SessionPartition]
    ) -> FollowerIdlePartitions:
        """Create the idle part of a follower's session. All its partitions are active at first."""
        return FollowerIdlePartitions(self, (replica_id, replica_epoch), active)

    def open_for_consumer(
        self, active: dict[SessionKey, SessionPartition]
    ) -> ConsumerIdlePartitions | None:
        """Create the idle part of a consumer's session. All its partitions are active at first.

        Returns:
            None if each fetch must look for a preferred replica for each partition.
        """
        return None if self._has_selector else ConsumerIdlePartitions(self, active)

    def activate(self, key: TopicPartition) -> None:
        """Make a partition active in all sessions, since its state may have changed."""
        for session in list(self.sessions.get(key, ())):
            session.activate(key)

    # Methods for sessions.

    def watch(self, key: TopicPartition, session: IdlePartitionSet) -> None:
        """Register a session in which the partition became idle."""
        self.sessions.setdefault(key, []).append(session)

    def forget(self, key: TopicPartition, session: IdlePartitionSet) -> None:
        """Remove a session in which the partition is no longer idle."""
        sessions = self.sessions[key]
        sessions.remove(session)
        if not sessions:
            del self.sessions[key]

    def broker_epoch(self, broker_id: int) -> int | None:
        """Return the epoch of the broker's registration, or None if it is not registered."""
        return self._brokers.broker_epoch(broker_id)

    def count_fetches(self, counts: Mapping[str, int]) -> None:
        """Count fetched partitions, given their number per topic."""
        topics = self._metrics.topics
        for topic, count in counts.items():
            topics[topic].fetch_requests += count

    def add_to_fetch(self, operation: DelayedFetch, entry: SessionPartition) -> None:
        """Add a changed partition to a pending fetch."""
        operation.add(entry)
        self._fetches.watch_also(operation, entry.where.topic_partition)
