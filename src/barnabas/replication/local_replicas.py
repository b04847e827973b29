"""What fetchers do to this broker's own replicas: look at their logs, append, cut."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from barnabas.storage.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.follower_side import Fetched, FollowerAppend
    from barnabas.replication.log_truncation import OffsetTruncation
    from barnabas.replication.partition import Partition
    from barnabas.replication.partition_registry import PartitionRegistry
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.replication.replication_throttle import ReplicationThrottle
    from barnabas.storage.log import Log
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class LogCutting(Protocol):
    """The log manager, as far as followers cut logs by it."""

    def truncate_to(self, partition: TopicPartition, offset: int) -> bool:
        """Cut a log, and let the recovery points on disk follow; returns whether it was cut."""
        ...

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
        """Begin a log anew at `offset`, and let the recovery points on disk follow."""
        ...


class LocalReplicas:
    """The followed ones among the partitions of a broker."""

    __slots__ = ("_logs", "_metrics", "_online", "_throttle", "wake")

    def __init__(
        self,
        registry: PartitionRegistry,
        logs: LogCutting,
        metrics: ReplicaMetrics,
        throttle: ReplicationThrottle,
        wake: Callable[[TopicPartition], None],
    ) -> None:
        self._online = registry.online
        self._logs = logs
        self._metrics = metrics
        # Of what this broker takes as follower.
        self._throttle = throttle
        # Lets those look who wait for a partition; to be called after the change.
        self.wake = wake

    def find(self, key: TopicPartition) -> Partition | None:
        """The partition; None if its data directory is offline, or it is gone."""
        return self._online.get(key)

    def log(self, key: TopicPartition) -> Log:
        """Its log.

        Raises:
            KafkaStorageError: its data directory is offline.
        """
        return self._partition(key).log

    @property
    def may_hold_back(self) -> bool:
        """Whether there is a throttle at all."""
        return self._throttle.is_active

    def is_held_back(self, key: TopicPartition, lag: int | None) -> bool:
        """Whether it is not to be fetched now; who has all may always ask for more."""
        throttle = self._throttle
        return (
            throttle.is_active and lag != 0 and throttle.is_throttled(key) and throttle.is_exceeded
        )

    def append(self, key: TopicPartition, fetch_offset: int, fetched: Fetched) -> FollowerAppend:
        """Append what the leader sent, and count it.

        Raises:
            StorageError, OffsetMismatchError: see `FollowerSide.append_as_follower`.
        """
        partition = self._partition(key)
        appended = partition.append_as_follower(
            fetch_offset,
            fetched,
            lambda offset: self._logs.truncate_fully_and_start_at(key, offset),
        )
        size = len(fetched.records)
        if self._throttle.is_active and self._throttle.is_throttled(key):
            self._throttle.record(size)
        self._metrics.replication_bytes_in += size
        if partition.is_being_added:
            self._metrics.reassignment_bytes_in += size
        return appended

    def truncate(self, key: TopicPartition, truncation: OffsetTruncation) -> None:
        """Cut the log. A future replica notices by the count of cuts, and cuts itself.

        Raises:
            StorageError: the disk failed.
        """
        log = self.log(key)
        if truncation.offset < log.high_watermark:
            _log.warning(
                "%s is cut to %d, below its high watermark %d",
                key,
                truncation.offset,
                log.high_watermark,
            )
        self._logs.truncate_to(key, truncation.offset)

    def begin_anew(self, key: TopicPartition, offset: int) -> None:
        """Empty the log and let it begin at `offset`.

        Raises:
            StorageError: the disk failed.
        """
        self._partition(key)
        self._logs.truncate_fully_and_start_at(key, offset)

    def _partition(self, key: TopicPartition) -> Partition:
        partition = self._online.get(key)
        if partition is None:
            raise KafkaStorageError(f"{key} is offline")
        return partition
