"""The counters and sizes of the remote tier: plain numbers, read when metrics are published.

Kafka's BrokerTopicStats has these meters and gauges for each topic. A gauge of a topic is the sum
over the partitions that this broker leads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from barnabas.metrics.measurements import Histogram

if TYPE_CHECKING:
    from barnabas.replication.remote.copy_causes import CopyCause
    from barnabas.storage.topic_partition import TopicPartition


class RemoteCounts:
    """Counters of one topic since the start."""

    __slots__ = (
        "build_aux_errors",
        "build_aux_requests",
        "copy_bytes",
        "copy_errors",
        "copy_requests",
        "delete_errors",
        "delete_requests",
        "fetch_bytes",
        "fetch_errors",
        "fetch_requests",
    )

    def __init__(self) -> None:
        # Copies of segments to the tier, by leaders.
        self.copy_bytes = 0
        self.copy_requests = 0
        self.copy_errors = 0
        # Reads of records for consumers.
        self.fetch_bytes = 0
        self.fetch_requests = 0
        self.fetch_errors = 0
        # Deletions of segments in the tier, by leaders.
        self.delete_requests = 0
        self.delete_errors = 0
        # Followers that begin behind the records that only the tier has.
        self.build_aux_requests = 0
        self.build_aux_errors = 0

    def add(self, other: RemoteCounts) -> None:
        """Add the counters of `other` to these."""
        for name in RemoteCounts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class CountsByTopic(dict[str, RemoteCounts]):
    """Counters by topic, created at the first access."""

    def __missing__(self, topic: str) -> RemoteCounts:
        made = self[topic] = RemoteCounts()
        return made


class PartitionSizes:
    """What is known of the tier of one led partition. Its tasks move the values."""

    __slots__ = (
        "copy_lag_bytes",
        "copy_lag_segments",
        "delete_lag_bytes",
        "delete_lag_segments",
        "local_retention_percent",
        "metadata_count",
        "retention_percent",
        "size_bytes",
        "size_computation_ms",
    )

    def __init__(self) -> None:
        # Closed segments that may be copied, and are not copied yet.
        self.copy_lag_bytes = 0
        self.copy_lag_segments = 0
        # Segments whose deletion has begun, and has not ended yet.
        self.delete_lag_bytes = 0
        self.delete_lag_segments = 0
        # Segments in the metadata, whatever their state, and the bytes of the finished ones.
        self.metadata_count = 0
        self.size_bytes = 0
        # How long the last sum of `size_bytes` took.
        self.size_computation_ms = 0.0
        # Size of the log as a percentage of retention.bytes, and of the local part as a percentage
        # of local.retention.bytes; 0 without a limit.
        self.retention_percent = 0
        self.local_retention_percent = 0


class RemoteMetrics:
    """Counters by topic, sizes by led partition, and the times of reads."""

    __slots__ = (
        "_deleted",
        "failed_reads",
        "list_offsets_expires",
        "partitions",
        "reader_times",
        "remote_fetch_expires",
        "topics",
    )

    def __init__(self) -> None:
        # Counters of existing topics by name, and the sum of those of deleted topics.
        self.topics = CountsByTopic()
        self._deleted = RemoteCounts()
        # Sizes of led partitions. Their tasks add and remove them.
        self.partitions: dict[TopicPartition, PartitionSizes] = {}
        # Failed reads by the kind of error.
        self.failed_reads: Counter[CopyCause] = Counter()
        # Fetches whose remote reads were not done in time.
        self.remote_fetch_expires = 0
        # Lookups of offsets that were not done in time, by partition.
        self.list_offsets_expires: defaultdict[TopicPartition, int] = defaultdict(int)
        # Time of each read of the store, in ms.
        self.reader_times = Histogram()

    def count_list_offsets_expired(self, key: TopicPartition) -> None:
        """Count a lookup of an offset that was not done in time."""
        self.list_offsets_expires[key] += 1

    def sizes_of(self, key: TopicPartition) -> PartitionSizes:
        """Return the sizes of a led partition; they begin with 0."""
        found = self.partitions.get(key)
        if found is None:
            found = self.partitions[key] = PartitionSizes()
        return found

    def forget_partition(self, key: TopicPartition) -> None:
        """Drop the sizes of a partition that this broker does not lead any more."""
        self.partitions.pop(key, None)

    def forget_topic(self, topic: str) -> None:
        """Drop a deleted topic. Its counters remain in the total of all topics."""
        counts = self.topics.pop(topic, None)
        if counts is not None:
            self._deleted.add(counts)
        for key in [each for each in self.list_offsets_expires if each.topic == topic]:
            del self.list_offsets_expires[key]
        for key in [each for each in self.partitions if each.topic == topic]:
            del self.partitions[key]

    def all_topics(self) -> RemoteCounts:
        """Return the total of all topics, including deleted ones."""
        total = RemoteCounts()
        total.add(self._deleted)
        for counts in self.topics.values():
            total.add(counts)
        return total
