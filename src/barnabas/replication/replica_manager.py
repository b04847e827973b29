"""A broker's partitions and what is asked of them (Kafka's ReplicaManager)."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.metadata.configs_image import TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.delayed_delete_records import (
    DelayedDeleteRecords,
    DeleteRecordsResult,
    PendingDelete,
)
from barnabas.replication.delayed_fetch import DelayedFetch, WaitingPartition
from barnabas.replication.delayed_produce import DelayedProduce, PendingAppend
from barnabas.replication.isr_maintenance import IsrMaintenance
from barnabas.replication.offset_lookup import list_offset, offsets_before
from barnabas.replication.partition import ACKS_ALL, NOTHING_TO_SYNC, Partition
from barnabas.replication.partition_registry import (
    ImageBrokers,
    LeadershipChanges,
    LogStore,
    PartitionRegistry,
)
from barnabas.replication.partition_settings import PartitionSettings
from barnabas.replication.results import (
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    EpochEndOffset,
    FetchResult,
    ListOffsetResult,
    ProduceResult,
    failed_fetch,
)
from barnabas.storage.errors import KafkaStorageError, StorageError
from barnabas.waiting.purgatory import Purgatory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.metadata.delta import ClusterDelta
    from barnabas.metadata.image import ClusterImage
    from barnabas.replication.alter_partition import AlterPartitionSender
    from barnabas.replication.config import ReplicationConfig
    from barnabas.replication.fetch_params import FetchParams, FetchPartitionData
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.runtime.clock import Clock
    from barnabas.storage.append_info import AppendOrigin
    from barnabas.storage.config import LogConfig
    from barnabas.storage.log import Log
    from barnabas.storage.read_result import FetchIsolation
    from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

_log = logging.getLogger(__name__)

_LOG_START_UNTOLD = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_VALID_ACKS = frozenset({ACKS_ALL, 0, 1})
_NO_TOPIC_ID = bytes(16)
# Looking a member up in its enum costs 100 ns, as much as a call.
_NONE = ErrorCode.NONE

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

Asked = tuple["TopicIdPartition", "FetchPartitionData"]
Answered = tuple["TopicIdPartition", FetchResult]


class LogManagement(LogStore, Protocol):
    """The log manager, as far as replication uses it."""

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of all logs to disk."""
        ...


class ReplicationParts(msgspec.Struct, frozen=True):
    """What a replica manager is joined with."""

    wheel: TimingWheel
    clock: Clock
    alter_partition_sender: AlterPartitionSender
    metrics: ReplicaMetrics
    # The configuration of a log, from what is set on its topic.
    log_config: Callable[[Mapping[str, str]], LogConfig]


class ReplicaManager:
    """Appends to, reads from and keeps in step the partitions that this broker has a replica of."""

    def __init__(
        self, node_id: int, config: ReplicationConfig, logs: LogManagement, parts: ReplicationParts
    ) -> None:
        self._config = config
        self._logs = logs
        self._wheel = parts.wheel
        self._clock = parts.clock
        self.metrics = parts.metrics
        self._brokers = ImageBrokers()
        settings = PartitionSettings(
            node_id, parts.clock, self._brokers, config.replica_lag_time_max_ms
        )
        self._node_id = node_id
        self._registry = PartitionRegistry(logs, parts.log_config, settings, self._brokers)
        # The registry's own dict, for the one look-up per partition of the hot path.
        self._online = self._registry.online
        self._produces = Purgatory("Produce", parts.wheel)
        self._fetches = Purgatory("Fetch", parts.wheel)
        self._deletes = Purgatory("DeleteRecords", parts.wheel)
        self._isr = IsrMaintenance(
            config.replica_lag_time_max_ms,
            parts.wheel,
            parts.alter_partition_sender,
            parts.metrics,
            self._online.values,
            self.wake,
        )
        self._checkpoint_entry: WheelEntry | None = None
        # Partitions to look at once the waking that is under way is over.
        self._to_wake: deque[TopicPartition] = deque()
        self._waking = False

    def start(self) -> None:
        """Begin the work that goes on by itself: ISR shrinking, high watermark checkpoints."""
        self._isr.start()
        self._schedule_checkpoint()

    def shutdown(self) -> None:
        """Stop it; what waits is dropped unanswered, and the high watermarks are written."""
        self._isr.stop()
        if self._checkpoint_entry is not None:
            self._checkpoint_entry.cancel()
        for purgatory in (self._produces, self._fetches, self._deletes):
            purgatory.shutdown()
        self._logs.checkpoint_high_watermarks()

    def answer_waiting_fetches(self) -> None:
        """Answer all who wait for records with what there is: the broker is about to stop."""
        self._fetches.complete_all()

    # Partitions.

    def partition(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """The partition if this broker has it online, else the error for the asker."""
        return self._registry.partition(topic_partition)

    def partitions(self) -> Iterable[Partition]:
        """All that are online."""
        return self._online.values()

    def waiting(self) -> dict[str, int]:
        """How many operations wait in each purgatory, by its name."""
        purgatories = (self._produces, self._fetches, self._deletes)
        return {purgatory.name: purgatory.delayed() for purgatory in purgatories}

    def watched(self) -> dict[str, int]:
        """The same, counted once per partition that each waits for."""
        purgatories = (self._produces, self._fetches, self._deletes)
        return {purgatory.name: purgatory.watched() for purgatory in purgatories}

    @property
    def offline_partitions(self) -> frozenset[TopicPartition]:
        """Those on a failed disk."""
        return frozenset(self._registry.offline)

    def apply_delta(self, delta: ClusterDelta, image: ClusterImage) -> LeadershipChanges:
        """Do what new metadata says: delete, lead, follow, configure; then wake who waited.

        Args:
            delta: what changed.
            image: the cluster with the changes made.

        Returns:
            What has changed on this broker, for the coordinators.
        """
        self._brokers.image = image
        changes = self._registry.apply(delta.topics_delta.local_changes(self._node_id))
        for key in changes.deleted:
            if image.topics.by_name(key.topic) is None:
                self.metrics.forget_topic(key.topic)
        moved = [
            topic_partition
            for resource_type, name in delta.config_changes
            if resource_type == TOPIC
            for topic_partition in self._registry.update_config(name)
        ]
        for topic_partition in (*changes.touched, *moved):
            self.wake(topic_partition)
        return changes

    def on_directory_failed(self, directory: str) -> list[TopicPartition]:
        """A data directory cannot be used any more: its partitions go offline.

        Returns:
            Them. Who waits for them is woken in the next turn: this may be called in the midst of
            an append.
        """
        affected = self._registry.take_directory_offline(directory)
        for topic_partition in affected:
            self._wheel.add(0, partial(self.wake, topic_partition))
        return affected

    def _schedule_checkpoint(self) -> None:
        interval_ms = self._config.replica_high_watermark_checkpoint_interval_ms
        self._checkpoint_entry = self._wheel.add(interval_ms, self._checkpoint)

    def _checkpoint(self) -> None:
        self._schedule_checkpoint()
        try:
            self._logs.checkpoint_high_watermarks()
        except StorageError as error:
            _log.error("cannot write the high watermarks: %s", error)

    # Waking.

    def wake(self, topic_partition: TopicPartition) -> None:
        """Something about the partition has changed: look at all who wait for it.

        Whoever is woken may append again; what that wakes has its turn afterwards, so that nobody
        looks at a partition in the midst of its change.
        """
        if not (self._fetches.delayed() or self._produces.delayed() or self._deletes.delayed()):
            return
        self._to_wake.append(topic_partition)
        if self._waking:
            return
        self._waking = True
        try:
            while self._to_wake:
                key = self._to_wake.popleft()
                self._fetches.check_and_complete(key)
                self._produces.check_and_complete(key)
                self._deletes.check_and_complete(key)
        finally:
            self._waking = False

    # Produce.

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: dict[TopicPartition, memoryview],
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        """Append each entry to its partition and answer when `required_acks` is fulfilled.

        Args:
            timeout_ms: how long acks=all may wait; then REQUEST_TIMED_OUT.
            required_acks: 0, 1 or -1; anything else is INVALID_REQUIRED_ACKS for all.
            entries: one record set each, writable: offset and epoch are set in place. Nothing
                keeps the view after the call.
            origin: who appends.
            on_done: gets one result per entry; may be called before this returns.
        """
        if required_acks not in _VALID_ACKS:
            on_done({key: ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS) for key in entries})
            return
        now_ms = self._clock.wall_ms()
        topics = self.metrics.topics
        results: dict[TopicPartition, ProduceResult] = {}
        appended: list[Partition] = []
        pending: list[PendingAppend] = []
        for key, records in entries.items():
            partition = self._online.get(key)
            if partition is None:
                results[key] = ProduceResult(self._registry.why_missing(key))
                continue
            try:
                info = partition.append_as_leader(records, origin, required_acks, now_ms)
            except StorageError as error:
                results[key] = self._refused(key, error, len(records))
                continue
            if isinstance(info, ErrorCode):
                results[key] = ProduceResult(info)
                continue
            result = results[key] = ProduceResult(
                _NONE,
                info.first_offset,
                info.last_offset,
                info.log_append_time,
                info.log_start_offset,
            )
            appended.append(partition)
            counts = topics[key.topic]
            counts.produce_requests += 1
            if not info.duplicate:
                counts.messages_in += info.record_count
                counts.bytes_in += info.size
            end_offset = info.last_offset + 1
            if required_acks == ACKS_ALL:
                if partition.log.high_watermark < end_offset:
                    pending.append(PendingAppend(key, end_offset, result))
            elif required_acks and partition.sync_required_from < end_offset:
                pending.append(PendingAppend(key, end_offset, result))
        self._after_append(appended)
        if pending:
            self._park(timeout_ms, required_acks, pending, results, on_done)
        else:
            on_done(results)

    def _after_append(self, appended: list[Partition]) -> None:
        """Begin the syncs that are due, and wake consumers and followers.

        Followers wait for the log end, so that they are looked at whether or not the high watermark
        has moved.
        """
        for partition in appended:
            if partition.sync_required_from != NOTHING_TO_SYNC:
                self._sync(partition)
            self.wake(partition.topic_partition)

    def _park(
        self,
        timeout_ms: int,
        required_acks: int,
        pending: list[PendingAppend],
        results: dict[TopicPartition, ProduceResult],
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        needs_all = required_acks == ACKS_ALL
        operation = DelayedProduce(timeout_ms, needs_all, pending, results, self, on_done)
        self._produces.try_complete_else_watch(operation, operation.pending)

    def count_expired_produces(self, partitions: int) -> None:
        """So many partitions were not acknowledged in time."""
        self.metrics.delayed_produce_expires += partitions

    def _refused(
        self, topic_partition: TopicPartition, error: StorageError, size: int
    ) -> ProduceResult:
        """The log does not take the records, or cannot."""
        counts = self.metrics.topics[topic_partition.topic]
        counts.produce_requests += 1
        if error.error_code in _TOO_LARGE:
            counts.bytes_rejected += size
        if isinstance(error, KafkaStorageError):
            _log.error("append to %s failed: %s", topic_partition, error)
            counts.failed_produce_requests += 1
        result = ProduceResult(error.error_code)
        # As Kafka: words only where single records are at fault, and the log's start only where
        # the log itself is in order and the records are not too large or corrupt.
        result.record_errors = tuple(getattr(error, "record_errors", ()))
        if result.record_errors:
            result.error_message = str(error)
        partition = self._online.get(topic_partition)
        if partition is not None and error.error_code not in _LOG_START_UNTOLD:
            result.log_start_offset = partition.log.log_start_offset
        return result

    def _sync(self, partition: Partition) -> None:
        """Sync what flush.messages wants synced, unless that is under way."""
        if partition.syncing:
            return
        partition.syncing = True
        synced_to = partition.log.log_end_offset
        log = partition.log
        log.flush_async(partial(self._on_synced, partition, (log, synced_to)))

    def _on_synced(
        self, partition: Partition, synced: tuple[Log, int], error: BaseException | None
    ) -> None:
        partition.syncing = False
        key = partition.topic_partition
        log, synced_to = synced
        if log is not partition.log:
            # Moved to another directory meanwhile, where it was synced.
            if partition.sync_required_from != NOTHING_TO_SYNC:
                self._sync(partition)
        elif error is not None:
            # Never tried again: what the disk has of it is unknown.
            _log.error("sync of %s failed: %s", key, error)
            if self._online.get(key) is partition:
                self._registry.take_offline(key)
        elif partition.on_synced(synced_to):
            self._sync(partition)
        self.wake(key)

    # Fetch.

    def fetch(
        self,
        params: FetchParams,
        partitions: list[Asked],
        on_done: Callable[[list[Answered]], None],
    ) -> None:
        """Read the partitions in order; answer when there is enough or the wait is over.

        Args:
            params: the request as a whole.
            partitions: what is asked, in the order of the request.
            on_done: gets one result per partition, in the same order; may be called before this
                returns.
        """
        topics = self.metrics.topics
        for where, _ in partitions:
            topics[where.topic].fetch_requests += 1
        results = self._read(params, partitions)
        if params.is_from_follower:
            self._take_follower_states(params, partitions, results)
        if params.max_wait_ms <= 0 or not partitions or _answers_at_once(params, results):
            on_done(results)
            return
        waiting = [
            WaitingPartition(where, where.topic_partition, data, result.position)
            for (where, data), (_, result) in zip(partitions, results, strict=True)
        ]
        operation = DelayedFetch(params, waiting, self, on_done)
        self._fetches.try_complete_else_watch(operation, [each.topic_partition for each in waiting])

    def read_again(self, params: FetchParams, partitions: list[Asked]) -> list[Answered]:
        """Read for a fetch that has waited: no follower state, not counted."""
        return self._read(params, partitions)

    def is_throttled(self, topic_partition: TopicPartition, replica_id: int) -> bool:  # noqa: ARG002
        """Whether the follower's bytes are over quota: there are no replication quotas."""
        return False

    def count_expired_fetch(self, from_follower: bool) -> None:
        """A fetch ran out of time."""
        if from_follower:
            self.metrics.delayed_fetch_follower_expires += 1
        else:
            self.metrics.delayed_fetch_consumer_expires += 1

    def _read(self, params: FetchParams, partitions: list[Asked]) -> list[Answered]:
        """Read in order within the limit of the answer; the first batch read may exceed it."""
        remaining = params.max_bytes
        min_one_batch = not params.has_hard_byte_limit
        results: list[Answered] = []
        for where, data in partitions:
            max_bytes = min(data.max_bytes, remaining)
            result = self._read_one(params, where, data, (max_bytes, min_one_batch))
            size = len(result.records)
            if size:
                min_one_batch = False
                remaining = max(0, remaining - size)
            results.append((where, result))
        return results

    def _read_one(
        self,
        params: FetchParams,
        where: TopicIdPartition,
        data: FetchPartitionData,
        limit: tuple[int, bool],
    ) -> FetchResult:
        key = where.topic_partition
        partition = self._online.get(key)
        if partition is None:
            if not where.topic:
                return failed_fetch(ErrorCode.UNKNOWN_TOPIC_ID)
            return failed_fetch(self._registry.why_missing(key))
        if where.topic_id not in (_NO_TOPIC_ID, partition.topic_id):
            return failed_fetch(ErrorCode.INCONSISTENT_TOPIC_ID)
        try:
            return partition.read(params, data, *limit)
        except StorageError as error:
            _log.error("read of %s failed: %s", key, error)
            self.metrics.topics[key.topic].failed_fetch_requests += 1
            return failed_fetch(error.error_code)

    def _take_follower_states(
        self, params: FetchParams, partitions: list[Asked], results: list[Answered]
    ) -> None:
        """Learn from a follower's fetch how far it is; not from one that has to truncate."""
        moved: list[TopicPartition] = []
        low_watermark_awaited = self._deletes.delayed() > 0
        for index, (where, data) in enumerate(partitions):
            result = results[index][1]
            partition = self._online.get(where.topic_partition)
            if partition is None or result.position is None:
                continue
            update = partition.update_follower_state(params, data, result, low_watermark_awaited)
            if isinstance(update, ErrorCode):
                results[index] = (where, failed_fetch(update))
                continue
            if update.proposal is not None:
                self._isr.propose(partition, update.proposal)
            if update.moved:
                moved.append(partition.topic_partition)
        for key in moved:
            self.wake(key)

    # Offsets and epochs.

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        isolation: FetchIsolation,
        current_leader_epoch: int,
        only_leader: bool = True,
    ) -> ListOffsetResult:
        """The offset at a timestamp, or at one of Kafka's special ones (-1 to -6).

        OFFSET_NOT_AVAILABLE is for versions >= 5; below the caller says LEADER_NOT_AVAILABLE.

        Args:
            isolation: LOG_END for replicas, else as in a fetch.
            current_leader_epoch: -1 if the request carries none.
            only_leader: False for a debugging consumer (replica id -2).
        """
        partition = self.partition(topic_partition)
        if isinstance(partition, ErrorCode):
            return ListOffsetResult(partition)
        error = partition.check_access(current_leader_epoch, only_leader)
        if error is not _NONE:
            return ListOffsetResult(error)
        return list_offset(partition, timestamp, isolation)

    def offsets_before(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        count_max: int,
        isolation: FetchIsolation,
        only_leader: bool = True,
    ) -> list[int] | ErrorCode:
        """What ListOffsets v0 answers, see `offset_lookup.offsets_before`."""
        partition = self.partition(topic_partition)
        if isinstance(partition, ErrorCode):
            return partition
        error = partition.check_access(UNKNOWN_EPOCH, only_leader)
        if error is not _NONE:
            return error
        return offsets_before(partition, timestamp, count_max, isolation, self._clock.wall_ms())

    def epoch_end_offset(
        self, topic_partition: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEndOffset:
        """Where `leader_epoch` ends in the leader's log (OffsetForLeaderEpoch)."""
        partition = self.partition(topic_partition)
        if isinstance(partition, ErrorCode):
            return EpochEndOffset(UNKNOWN_EPOCH, UNKNOWN_OFFSET, partition)
        return partition.epoch_end_offset(current_leader_epoch, leader_epoch, only_leader=True)

    def delete_records(
        self,
        timeout_ms: int,
        offsets: dict[TopicPartition, int],
        on_done: Callable[[dict[TopicPartition, DeleteRecordsResult]], None],
    ) -> None:
        """Forget what lies below each offset (-1: the high watermark), here and on live followers.

        Args:
            on_done: gets one result per partition; may be called before this returns.
        """
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        pending: list[PendingDelete] = []
        for key, offset in offsets.items():
            result = results[key] = DeleteRecordsResult()
            partition = self.partition(key)
            if isinstance(partition, ErrorCode):
                result.error = partition
                continue
            started_at = partition.delete_records(offset)
            if isinstance(started_at, ErrorCode):
                result.error = started_at
            else:
                pending.append(PendingDelete(key, started_at, result))
        for each in pending:
            self.wake(each.topic_partition)
        operation = DelayedDeleteRecords(timeout_ms, pending, results, self, on_done)
        keys = [each.topic_partition for each in pending]
        self._deletes.try_complete_else_watch(operation, keys)


def _answers_at_once(params: FetchParams, results: list[Answered]) -> bool:
    """Enough bytes, an error, a diverging epoch, or a replica that is to be preferred."""
    size = 0
    for _, result in results:
        if (
            result.error is not _NONE
            or result.diverging_epoch is not None
            or result.preferred_read_replica >= 0
        ):
            return True
        size += len(result.records)
    return size >= params.min_bytes
