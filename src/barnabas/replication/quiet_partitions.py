"""Who is to be told when a partition, of which there was no news for followers, changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.replication.quiet_session import QuietSession

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.replication.delayed_fetch import DelayedFetch
    from barnabas.replication.partition import Partition
    from barnabas.replication.partition_registry import ImageBrokers
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.replication.session_partition import SessionKey, SessionPartition
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.purgatory import Purgatory


class QuietPartitions:
    """Sessions by partition, of all followers of a broker."""

    __slots__ = ("_brokers", "_fetches", "_metrics", "online", "sessions")

    def __init__(
        self,
        online: Mapping[TopicPartition, Partition],
        brokers: ImageBrokers,
        fetches: Purgatory,
        metrics: ReplicaMetrics,
    ) -> None:
        # The registry's own dict.
        self.online = online
        self._brokers = brokers
        self._fetches = fetches
        self._metrics = metrics
        # Those in which a partition is quiet; a partition without any is not there.
        self.sessions: dict[TopicPartition, list[QuietSession]] = {}

    def open(
        self, replica_id: int, replica_epoch: int, loud: dict[SessionKey, SessionPartition]
    ) -> QuietSession:
        """A session begins; nothing is quiet in it yet."""
        return QuietSession(self, (replica_id, replica_epoch), loud)

    def disturb(self, key: TopicPartition) -> None:
        """Something about a partition has changed, or may have."""
        for session in list(self.sessions.get(key, ())):
            session.disturb(key)

    # For sessions.

    def watch(self, key: TopicPartition, session: QuietSession) -> None:
        """It is quiet in one more session."""
        self.sessions.setdefault(key, []).append(session)

    def forget(self, key: TopicPartition, session: QuietSession) -> None:
        """It is quiet no more in a session."""
        sessions = self.sessions[key]
        sessions.remove(session)
        if not sessions:
            del self.sessions[key]

    def broker_epoch(self, broker_id: int) -> int | None:
        """Epoch of its registration."""
        return self._brokers.broker_epoch(broker_id)

    def count_fetches(self, counts: Mapping[str, int]) -> None:
        """So many partitions of each topic were fetched."""
        topics = self._metrics.topics
        for topic, count in counts.items():
            topics[topic].fetch_requests += count

    def let_wait_for(self, operation: DelayedFetch, entry: SessionPartition) -> None:
        """A fetch that waits has to look at one more partition."""
        operation.add(entry)
        self._fetches.watch_also(operation, entry.where.topic_partition)
