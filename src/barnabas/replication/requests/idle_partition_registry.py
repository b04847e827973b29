"""Finds the fetch sessions that must be notified when an idle partition changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.replication.requests.consumer_idle_partitions import ConsumerIdlePartitions
from barnabas.replication.requests.follower_idle_partitions import FollowerIdlePartitions

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import ImageBrokers
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.replication.requests.delayed_fetch import DelayedFetch
    from barnabas.replication.requests.idle_partition_set import IdlePartitionSet
    from barnabas.replication.requests.session_partition import SessionKey, SessionPartition
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.purgatory import Purgatory


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
