"""What replication counts: plain numbers on the hot path, read by whoever publishes metrics."""

from __future__ import annotations


class TopicCounts:
    """One topic's, as leader, since the start."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_conversions",
        "fetch_requests",
        "messages_in",
        "produce_conversions",
        "produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        # Answered to consumers.
        self.bytes_out = 0
        self.bytes_rejected = 0
        # Partitions of requests, not requests, as Kafka counts.
        self.produce_requests = 0
        self.fetch_requests = 0
        # As Kafka counts: reads that failed unexpectedly, and appends refused but for a few errors
        # that `replica_appends` lists.
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0
        # Records that an old producer sent, or an old consumer got, in their own format.
        self.produce_conversions = 0
        self.fetch_conversions = 0

    def add(self, other: TopicCounts) -> None:
        """Take over what another one counted."""
        for name in TopicCounts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class CountsByTopic(dict[str, TopicCounts]):
    """Makes the counts of a topic when it is first looked at."""

    def __missing__(self, topic: str) -> TopicCounts:
        made = self[topic] = TopicCounts()
        return made


class ReplicaMetrics:
    """Counts since the start, under the names of Kafka's meters."""

    __slots__ = (
        "_deleted",
        "delayed_fetch_consumer_expires",
        "delayed_fetch_follower_expires",
        "delayed_produce_expires",
        "failed_isr_updates",
        "isr_expands",
        "isr_shrinks",
        "metadata_apply_errors",
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "replication_bytes_in",
        "replication_bytes_out",
        "topics",
    )

    def __init__(self) -> None:
        # By name. All topics together are the sum of these and of those that are gone.
        self.topics = CountsByTopic()
        self._deleted = TopicCounts()
        # Answered to followers, and appended as follower.
        self.replication_bytes_out = 0
        self.replication_bytes_in = 0
        # What of it was for replicas that a reassignment adds.
        self.reassignment_bytes_out = 0
        self.reassignment_bytes_in = 0
        self.isr_expands = 0
        self.isr_shrinks = 0
        # Proposals that the controller refused.
        self.failed_isr_updates = 0
        # Partitions and topics for which this broker could not do what the metadata says.
        self.metadata_apply_errors = 0
        # Partitions that were not acknowledged in time.
        self.delayed_produce_expires = 0
        self.delayed_fetch_follower_expires = 0
        self.delayed_fetch_consumer_expires = 0

    def count_isr_change(self, members: int) -> None:
        """An ISR has grown (above zero) or shrunk (below) by so many members."""
        if members > 0:
            self.isr_expands += 1
        elif members < 0:
            self.isr_shrinks += 1

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: its counts stay in those of all topics."""
        counts = self.topics.pop(topic, None)
        if counts is not None:
            self._deleted.add(counts)

    def all_topics(self) -> TopicCounts:
        """What was counted of all topics, those that are gone included."""
        total = TopicCounts()
        total.add(self._deleted)
        for counts in self.topics.values():
            total.add(counts)
        return total
