"""The topic `__remote_log_metadata` as the store of the metadata of remote segments (KIP-405).

Kafka's TopicBasedRemoteLogMetadataManager. The topic is created when this broker has the first
tiered partition. A user partition belongs to the metadata partition that Kafka's partitioner
chooses, so clusters with brokers of both kinds read the same events.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.producer.partitioner import partition_for_key
from barnabas.network.reconnect_backoff import exponential_ms
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import encode_metadata_record
from barnabas.server.remote.metadata_events import EVENT_BYTES_MAX
from barnabas.server.remote.metadata_publisher import MetadataPublisher
from barnabas.server.remote.metadata_tail import MetadataTail
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.replication.remote.interfaces import SegmentRecord
    from barnabas.runtime.clock import Cancellable
    from barnabas.server.controller_access.auto_topics import AutoTopics
    from barnabas.server.peers.peer_queues import PeerDependencies
    from barnabas.server.remote.metadata_reader import StepQueue
    from barnabas.storage.remote.config import MetadataTopicConfig
    from barnabas.storage.remote.segment_states import Applied, RemoteLog
    from barnabas.storage.topic_partition import TopicIdPartition

_log = logging.getLogger(__name__)

_EVENT_VERSION = 0
# Time between the first two requests to create the topic, and the longest time.
_CREATE_FIRST_MS, _CREATE_MAX_MS = 1_000.0, 30_000.0
_INT32_MASK = 0xFFFF_FFFF

# Why no metadata is read: the topic has another number of partitions, or does not exist.
PROBLEMS = PARTITION_COUNT, MISSING = "partition-count", "missing"


class RemoteMetadataTopic:
    """Implements `RemoteMetadata` of the replicas."""

    def __init__(
        self,
        config: MetadataTopicConfig,
        peers: PeerDependencies,
        auto_topics: AutoTopics,
        steps: StepQueue,
    ) -> None:
        """Create without partitions. Nothing is read, written or created before `start`.

        Args:
            config: the configuration of the topic.
            peers: the leaders, and channels to all brokers including this one.
            auto_topics: creates the topic.
            steps: runs the replay of events.
        """
        self._config = config
        self._count = config.remote_log_metadata_topic_num_partitions
        self._cluster, self._timer = peers.cluster, peers.timer
        self._auto_topics = auto_topics
        self._publisher = MetadataPublisher(config.remote_log_metadata_consume_wait_ms, peers)
        self._tail = MetadataTail(peers, steps, self._publisher.on_applied)
        # The assigned user partitions, and their metadata partitions.
        self._assigned: dict[TopicIdPartition, int] = {}
        self._is_started = False
        # Whether the topic was found with the right number of partitions. Then events are read.
        self._is_reading = False
        # The number of partitions of an existing topic that cannot be used; 0 if there is none.
        self._wrong_count = 0
        # Number of requests to create the topic, and the timer of the next one.
        self._creations = 0
        self._retry: Cancellable | None = None

    @property
    def problem(self) -> str:
        """Why no metadata is read, for the operator. Empty if it is read, or is not needed."""
        return {
            PARTITION_COUNT: (
                f"the topic {REMOTE_LOG_TOPIC} has {self._wrong_count} partitions, but "
                f"remote.log.metadata.topic.num.partitions is {self._count}"
            ),
            MISSING: f"the topic {REMOTE_LOG_TOPIC} does not exist yet",
        }.get(self.problem_kind, "")

    @property
    def problem_kind(self) -> str:
        """The kind of the problem, for metrics: one of `PROBLEMS`, or empty."""
        if self._wrong_count:
            return PARTITION_COUNT
        return MISSING if self._assigned and not self._is_reading else ""

    @property
    def segment_count(self) -> int:
        """Number of segments of all assigned partitions."""
        return self._tail.segment_count

    @property
    def skipped(self) -> int:
        """Number of records that are no events of segments. Only increases."""
        return self._tail.skipped

    @property
    def dropped(self) -> int:
        """Number of events that came too late, or twice. Only increases."""
        return self._tail.dropped

    def start(self) -> None:
        """Read the topic, and create it if it is missing and needed."""
        self._is_started = True
        self._check_topic()

    def close(self) -> None:
        """Stop. No callback is made any more."""
        self._is_started = False
        self._end_retry()
        self._assigned.clear()
        self._publisher.close()
        self._tail.close()

    def on_image(self) -> None:
        """Follow the topic and its leaders in the latest image."""
        if self._is_reading:
            self._tail.on_image()
        else:
            self._check_topic()

    def partition_of(self, where: TopicIdPartition) -> int:
        """Return the metadata partition with the events of a user partition."""
        return metadata_partition(where, self._count)

    # RemoteMetadata.

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Read the metadata of more partitions."""
        for where in partitions:
            index = self._assigned[where] = self.partition_of(where)
            self._tail.assign(index, where)
        self._check_topic()

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Forget the metadata of partitions. Their events that are being written fail."""
        for where in partitions:
            index = self._assigned.pop(where, None)
            if index is not None:
                self._tail.unassign(index, where)
                self._publisher.cancel(where)

    def log_of(self, where: TopicIdPartition) -> RemoteLog | None:
        """Return the segments of a partition; None until all earlier events are known."""
        index = self._assigned.get(where)
        return None if index is None else self._tail.log_of(index, where)

    def on_ready(self, where: TopicIdPartition, call: Callable[[], None]) -> None:
        """Call back once `log_of` answers; at once if it does.

        The callback is dropped if the partition is not assigned, or is unassigned before.
        """
        index = self._assigned.get(where)
        if index is not None:
            self._tail.on_ready(index, where, call)

    def publish(
        self,
        where: TopicIdPartition,
        record: SegmentRecord,
        on_done: Callable[[Applied | ErrorCode], None],
    ) -> None:
        """Write an event, and call back when it was read again, or with the error.

        Errors: REPLICA_NOT_AVAILABLE if the partition is not ready, or is unassigned meanwhile;
        REQUEST_TIMED_OUT after `remote.log.metadata.consume.wait.ms`, and then the event may still
        appear; THROTTLING_QUOTA_EXCEEDED if too many events wait; MESSAGE_TOO_LARGE; other errors
        of the leader.

        Raises:
            ProtocolError: a value of the record does not fit its field.
        """
        if self.log_of(where) is None:
            self._timer.call_soon(partial(on_done, ErrorCode.REPLICA_NOT_AVAILABLE))
            return
        value = encode_metadata_record(record, _EVENT_VERSION)
        if len(value) > EVENT_BYTES_MAX:
            self._timer.call_soon(partial(on_done, ErrorCode.MESSAGE_TOO_LARGE))
            return
        self._publisher.write(where, self._assigned[where], value, on_done)

    def find_deleted(
        self,
        index: int,
        exists: Callable[[bytes], bool],
        on_found: Callable[[list[TopicIdPartition]], None],
    ) -> None:
        """Read a metadata partition once, for segments of topics that do not exist.

        Args:
            index: the metadata partition.
            exists: whether there is a topic with this id. It is called for each event, and may be
                behind: an event can be newer than the image of this broker.
            on_found: gets the user partitions; it is called once, or never after `close`.
        """
        self._tail.find_deleted(index, exists, on_found)

    # The topic.

    def _check_topic(self) -> None:
        """Begin to read the topic if it exists, and create it if it is needed."""
        if not self._is_started or self._is_reading:
            return
        count = self._cluster.partition_count(REMOTE_LOG_TOPIC)
        if count == self._count:
            self._end_retry()
            self._wrong_count = 0
            self._is_reading = True
            self._tail.start()
        elif count:
            if count != self._wrong_count:
                self._wrong_count = count
                _log.error("Segments are neither copied nor read: %s", self.problem)
        elif self._assigned and self._retry is None:
            self._create()

    def _create(self) -> None:
        self._auto_topics.create_metadata_topic(self._config)
        self._creations += 1
        delay_ms = exponential_ms(_CREATE_FIRST_MS, _CREATE_MAX_MS, self._creations)
        self._retry = self._timer.call_later(delay_ms, self._create_again)

    def _create_again(self) -> None:
        self._retry = None
        self._check_topic()

    def _end_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None


def metadata_partition(where: TopicIdPartition, count: int) -> int:
    """Return the partition of the metadata topic for a user partition, as Kafka's partitioner.

    Kafka hashes the two halves of the topic id and the partition by `Objects.hash`, and the four
    bytes of this hash like the key of a record.
    """
    most = int.from_bytes(where.topic_id[:8])
    least = int.from_bytes(where.topic_id[8:])
    hashed = 1
    for part in (_long_hash(least), _long_hash(most), where.partition):
        hashed = (31 * hashed + part) & _INT32_MASK
    return partition_for_key(hashed.to_bytes(4), count)


def _long_hash(value: int) -> int:
    """Return Java's Long.hashCode of 64 bits, as an unsigned number."""
    return (value ^ value >> 32) & _INT32_MASK
