"""The counters of replication: plain numbers on the hot path, read when metrics are published."""

from __future__ import annotations


class TopicCounts:
    """Counters of one topic on its leaders, since the start."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "failed_share_acknowledge_requests",
        "failed_share_fetch_requests",
        "fetch_conversions",
        "fetch_requests",
        "messages_in",
        "produce_conversions",
        "produce_requests",
        "share_acknowledge_requests",
        "share_fetch_requests",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        # Bytes sent to consumers.
        self.bytes_out = 0
        self.bytes_rejected = 0
        # Each counts the partitions in requests, not the requests, as in Kafka.
        self.produce_requests = 0
        self.fetch_requests = 0
        # As in Kafka: reads that failed unexpectedly, and rejected appends except for the errors
        # that `replica_appends` lists.
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0
        # Records converted from or to the message formats of old producers and consumers.
        self.produce_conversions = 0
        self.fetch_conversions = 0
        # Requests of share consumers with the topic, and those with an error for a partition of it.
        self.share_fetch_requests = 0
        self.failed_share_fetch_requests = 0
        self.share_acknowledge_requests = 0
        self.failed_share_acknowledge_requests = 0

    def add(self, other: TopicCounts) -> None:
        """Add the counters of `other` to these."""
        for name in TopicCounts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class CountsByTopic(dict[str, TopicCounts]):
    """Counters by topic, created at the first access."""

    def __missing__(self, topic: str) -> TopicCounts:
        made = self[topic] = TopicCounts()
        return made


class ReplicaMetrics:
    """Counters since the start, under the names of Kafka's meters."""

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
        # Counters of existing topics by name, and the sum of those of deleted topics.
        self.topics = CountsByTopic()
        self._deleted = TopicCounts()
        # Bytes sent to followers, and bytes appended as a follower.
        self.replication_bytes_out = 0
        self.replication_bytes_in = 0
        # The part of these for replicas that a reassignment adds.
        self.reassignment_bytes_out = 0
        self.reassignment_bytes_in = 0
        self.isr_expands = 0
        self.isr_shrinks = 0
        # Proposals that the controller rejected.
        self.failed_isr_updates = 0
        # Partitions and topics for which this broker could not apply the metadata.
        self.metadata_apply_errors = 0
        # Partitions of produce requests that timed out.
        self.delayed_produce_expires = 0
        self.delayed_fetch_follower_expires = 0
        self.delayed_fetch_consumer_expires = 0

    def count_isr_change(self, members: int) -> None:
        """Count an ISR change: `members` is positive for growth, negative for shrinkage."""
        if members > 0:
            self.isr_expands += 1
        elif members < 0:
            self.isr_shrinks += 1

    def forget_topic(self, topic: str) -> None:
        """Drop a deleted topic. Its counters remain in the total of all topics."""
        counts = self.topics.pop(topic, None)
        if counts is not None:
            self._deleted.add(counts)

    def all_topics(self) -> TopicCounts:
        """Return the total of all topics, including deleted ones."""
        total = TopicCounts()
        total.add(self._deleted)
        for counts in self.topics.values():
            total.add(counts)
        return total
