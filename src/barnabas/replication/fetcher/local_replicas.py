"""The fetchers' access to this broker's own replicas: reading state, appending, truncating."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.replication.partition.partition_roles import OffsetMismatchError
from barnabas.replication.partition.results import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from barnabas.storage.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import PartitionRegistry
    from barnabas.replication.partition.partition_roles import Fetched, FollowerAppend
    from barnabas.replication.partition.results import EpochEndOffset
    from barnabas.replication.remote.segment_end import AuxiliaryState
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.replication.replication_throttle import ReplicationThrottle
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class OffsetTruncation(NamedTuple):
    """The target of one truncation."""

    offset: int
    # Whether both logs are known to be equal below. If not, the follower queries the leader again.
    is_complete: bool


def truncation_offset(log: Log, leader_end: EpochEndOffset, fetch_offset: int) -> OffsetTruncation:
    """Return the largest offset up to which both logs may be equal.

    Args:
        log: the follower's log.
        leader_end: the leader's largest epoch that is at most the follower's last epoch, with its
            end offset in the leader's log.
        fetch_offset: the initial fetch offset, used if the leader has no epochs.
    """
    own_end = log.log_end_offset
    if leader_end.end_offset == UNKNOWN_OFFSET:
        return OffsetTruncation(fetch_offset, is_complete=True)
    if leader_end.epoch == UNKNOWN_EPOCH:
        return OffsetTruncation(min(leader_end.end_offset, own_end), is_complete=True)
    epoch, end_of_epoch = log.end_offset_for_epoch(leader_end.epoch)
    if end_of_epoch == UNKNOWN_OFFSET:
        return OffsetTruncation(min(leader_end.end_offset, own_end), is_complete=True)
    if epoch != leader_end.epoch:
        # The follower has no record of that epoch: truncate to the end of the previous epoch, and
        # query again.
        return OffsetTruncation(min(end_of_epoch, own_end), is_complete=False)
    return OffsetTruncation(min(end_of_epoch, leader_end.end_offset, own_end), is_complete=True)


class TruncatableLogs(Protocol):
    """The part of the log manager that truncates followers' logs."""

    def truncate_to(self, partition: TopicPartition, offset: int) -> bool:
        """Truncate a log and its recovery point on disk. Return whether it was truncated."""
        ...

    def restart_log(self, partition: TopicPartition, restart: Callable[[Log], None]) -> None:
        """Empty a log and start it anew by `restart`, and update its checkpoints on disk."""
        ...


class LocalReplicas:
    """The partitions that this broker follows."""

    __slots__ = ("_logs", "_metrics", "_online", "_throttle", "wake")

    def __init__(
        self,
        registry: PartitionRegistry,
        logs: TruncatableLogs,
        metrics: ReplicaMetrics,
        throttle: ReplicationThrottle,
        wake: Callable[[TopicPartition], None],
    ) -> None:
        self._online = registry.online
        self._logs = logs
        self._metrics = metrics
        # Throttle of the records that this broker fetches as a follower.
        self._throttle = throttle
        # Checks all operations that wait for a partition. Called after the change.
        self.wake = wake

    def find(self, key: TopicPartition) -> Partition | None:
        """Return the partition, or None if its directory is offline or it is deleted."""
        return self._online.get(key)

    def log(self, key: TopicPartition) -> Log:
        """Return the log of a partition.

        Raises:
            KafkaStorageError: the data directory is offline.
        """
        return self._partition(key).log

    def latest_epoch(self, key: TopicPartition) -> int | None:
        """Return the leader's epoch of the last record, or None if it is not known."""
        partition = self._online.get(key)
        return None if partition is None else partition.log.latest_epoch

    def truncation_offset(
        self, log: Log, leader_end: EpochEndOffset, fetch_offset: int
    ) -> OffsetTruncation:
        """Return the largest offset up to which both logs may be equal."""
        return truncation_offset(log, leader_end, fetch_offset)

    @property
    def may_hold_back(self) -> bool:
        """Whether any partition is throttled."""
        return self._throttle.is_active

    def is_held_back(self, key: TopicPartition, lag: int | None) -> bool:
        """Whether the throttle delays the fetch of a partition.

        Partitions without lag are exempt.
        """
        throttle = self._throttle
        return (
            throttle.is_active and lag != 0 and throttle.is_throttled(key) and throttle.is_exceeded
        )

    def append(self, key: TopicPartition, fetch_offset: int, fetched: Fetched) -> FollowerAppend:
        """Append the leader's records, and count them.

        Raises:
            StorageError, OffsetMismatchError: see `FollowerRole.append`.
        """
        follower = self._partition(key).follower
        if follower is None:
            raise OffsetMismatchError(f"{key} has no leader that this broker follows")
        appended = follower.append(
            fetch_offset,
            fetched,
            lambda offset: self.restart_log_at(key, offset),
        )
        size = len(fetched.records)
        if self._throttle.is_active and self._throttle.is_throttled(key):
            self._throttle.record(size)
        self._metrics.replication_bytes_in += size
        if follower.is_being_added:
            self._metrics.reassignment_bytes_in += size
        return appended

    def truncate(self, key: TopicPartition, truncation: OffsetTruncation) -> None:
        """Truncate the log.

        A future replica detects this by the log's number of truncations, and truncates itself.

        Raises:
            StorageError: the disk failed.
        """
        log = self.log(key)
        if truncation.offset < log.high_watermark:
            _log.warning(
                "Log truncated below its high watermark: partition=%s offset=%d high_watermark=%d",
                key,
                truncation.offset,
                log.high_watermark,
            )
        self._logs.truncate_to(key, truncation.offset)
        assert log.log_end_offset <= truncation.offset, (
            f"LogMatching: partition={key} log_end={log.log_end_offset} truncation={truncation}"
        )

    def restart_log_at(self, key: TopicPartition, offset: int) -> None:
        """Empty the log and start it at `offset`.

        Raises:
            StorageError: the disk failed.
        """
        self._partition(key)
        self._logs.restart_log(key, lambda log: log.truncate_fully_and_start_at(offset))

    def start_behind_tier(
        self, key: TopicPartition, state: AuxiliaryState, leader_log_start_offset: int
    ) -> None:
        """Empty the log, and start its local part behind a remote segment.

        Args:
            key: the partition.
            state: what is known at the end of the segment.
            leader_log_start_offset: the new log start offset; -1 if the leader did not tell it.

        Raises:
            StorageError: the disk failed.
        """
        log = self.log(key)
        _log.info(
            "Log starts behind the remote tier: partition=%s log_end_offset=%d new_local_start=%d "
            "leader_log_start=%d",
            key,
            log.log_end_offset,
            state.offset,
            leader_log_start_offset,
        )
        start = log.log_start_offset if leader_log_start_offset < 0 else leader_log_start_offset
        start = min(start, state.offset)
        epochs, snapshot = state.epochs, state.producer_snapshot
        self._logs.restart_log(
            key, lambda log: log.adopt_auxiliary_state(state.offset, start, epochs, snapshot)
        )
        assert log.log_end_offset == state.offset, (
            f"partition={key} log_end={log.log_end_offset} wanted={state.offset}"
        )

    def _partition(self, key: TopicPartition) -> Partition:
        partition = self._online.get(key)
        if partition is None:
            raise KafkaStorageError(f"{key} is offline")
        return partition
