"""What replication counts: plain numbers on the hot path, read by whoever publishes metrics."""

from __future__ import annotations


class ReplicaMetrics:
    """Counts since the start, under the names of Kafka's meters."""

    __slots__ = (
        "bytes_in",
        "delayed_fetch_consumer_expires",
        "delayed_fetch_follower_expires",
        "delayed_produce_expires",
        "failed_fetch_requests",
        "failed_isr_updates",
        "failed_produce_requests",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        # Appended as leader, of all topics.
        self.messages_in = 0
        self.bytes_in = 0
        self.isr_expands = 0
        self.isr_shrinks = 0
        # Proposals that the controller refused.
        self.failed_isr_updates = 0
        # Partitions of requests, not requests, as Kafka counts.
        self.total_produce_requests = 0
        self.total_fetch_requests = 0
        # Failures that are the broker's own: storage and the unexpected.
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0
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
