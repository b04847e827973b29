"""Appends of producers and coordinators (the writing half of Kafka's ReplicaManager)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.delayed_produce import DelayedProduce, PendingAppend
from barnabas.replication.leader_side import ACKS_ALL
from barnabas.replication.partition_replica import NOTHING_TO_SYNC
from barnabas.replication.results import ProduceResult
from barnabas.storage.errors import KafkaStorageError, StorageError, log_level_of
from barnabas.storage.inspection_needed import InspectionNeededError
from barnabas.waiting.off_loop import ImmediateSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.replication.partition import Partition
    from barnabas.replication.partition_registry import PartitionRegistry
    from barnabas.replication.put_off_append import PutOffAppend, StepQueue
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.runtime.clock import Clock
    from barnabas.storage.append_info import AppendInfo, AppendOrigin
    from barnabas.storage.batch_inspection import InspectedRecords, Inspection
    from barnabas.storage.log import Log
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.purgatory import Purgatory

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
# Errors that FailedProduceRequestsPerSec leaves out, as in Kafka: ReplicaManager.appendRecordsToLog
# counts every other one, those of producers' epochs and sequences too.
_EXPECTED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
# Looking a member up in its enum costs 100 ns, as much as a call.
_NONE = ErrorCode.NONE


class AppendParts(msgspec.Struct, frozen=True):
    """What appends are joined with."""

    registry: PartitionRegistry
    metrics: ReplicaMetrics
    clock: Clock
    # Where appends wait for the ISR or for a sync.
    produces: Purgatory
    # Lets those look who wait for a partition.
    wake: Callable[[TopicPartition], None]
    # A partition's disk failed: it goes offline.
    take_offline: Callable[[TopicPartition], None]
    # Where records are looked into when that takes several turns; None for at once.
    inspections: StepQueue | None = None


class ReplicaAppends:
    """Appends at once and answers when it is acknowledged."""

    __slots__ = (
        "_clock",
        "_inspections",
        "_metrics",
        "_online",
        "_produces",
        "_registry",
        "_take_offline",
        "_wake",
    )

    def __init__(self, parts: AppendParts) -> None:
        self._registry = parts.registry
        # The registry's own dict, for the one look-up per partition of the hot path.
        self._online = parts.registry.online
        self._metrics = parts.metrics
        self._clock = parts.clock
        self._produces = parts.produces
        self._wake = parts.wake
        self._take_offline = parts.take_offline
        queue = parts.inspections
        self._inspections = ImmediateSteps() if queue is None else queue

    def partition(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """The partition if it is online here, else the error for the asker."""
        return self._registry.partition(topic_partition)

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, memoryview | InspectedRecords],
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> DelayedProduce | PutOffAppend | None:
        """Append each entry to its partition and answer when `required_acks` is fulfilled.

        Args:
            timeout_ms: how long acks=all may wait; then REQUEST_TIMED_OUT.
            required_acks: 0, 1 or -1; all else is INVALID_REQUIRED_ACKS for partitions that exist.
            entries: one writable record set each, patched in place. No view is kept.
            origin: who appends.
            on_done: gets one result per entry; may be called before this returns.

        Returns:
            The operation that waits (for replicas, or for a look into records); None if answered.
        """
        if required_acks not in _VALID_ACKS:
            self._refuse_acks(entries, on_done)
            return None
        now_ms = self._clock.wall_ms()
        results: dict[TopicPartition, ProduceResult] = {}
        appended: list[tuple[Partition, AppendInfo]] = []
        pending: list[PendingAppend] = []
        put_off: dict[TopicPartition, Inspection] | None = None
        for key, records in entries.items():
            partition = self._online.get(key)
            if partition is None:
                results[key] = ProduceResult(self._missing(key))
                continue
            try:
                info = partition.append_as_leader(records, origin, required_acks, now_ms)
            except InspectionNeededError as needed:
                put_off = {**(put_off or {}), key: needed.inspection}
                continue
            except Exception as error:  # noqa: BLE001 - the request's other partitions go on
                results[key] = self._failed(key, error, records.nbytes)
                continue
            if isinstance(info, ErrorCode):
                self._count_refusal(key, info)
                results[key] = ProduceResult(info)
                continue
            appended.append((partition, info))
            result = results[key] = _result_of(info)
            if required_acks == ACKS_ALL:
                acknowledged = partition.log.high_watermark
            else:
                acknowledged = partition.sync_required_from
            if required_acks and acknowledged <= info.last_offset:
                pending.append(PendingAppend(key, info.last_offset + 1, result))
        if put_off is not None:
            self._after_append(appended)
            later = self._put_off(timeout_ms, required_acks, origin, on_done)
            return later.begin(put_off, results, pending, self._inspections)
        if pending:
            self._after_append(appended)
            return self.park(timeout_ms, required_acks, pending, results, on_done)
        # The response first: the requests that are woken do not depend on it.
        on_done(results)
        self._after_append(appended)
        return None

    def _refuse_acks(
        self,
        entries: Iterable[TopicPartition],
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        refused = dict.fromkeys(entries, ErrorCode.INVALID_REQUIRED_ACKS)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for key in entries:
            if key not in self._online and self._registry.why_missing(key) is unknown:
                refused[key] = unknown
        on_done({key: ProduceResult(error) for key, error in refused.items()})

    def _put_off(
        self,
        timeout_ms: int,
        required_acks: int,
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> PutOffAppend:
        # Most brokers never need it.
        from barnabas.replication.put_off_append import PutOffAppend

        return PutOffAppend(self, required_acks, timeout_ms, origin, on_done)

    def _after_append(self, appended: list[tuple[Partition, AppendInfo]]) -> None:
        """Count, begin the syncs that are due, and wake consumers and followers.

        Followers wait for the log end, so that they are looked at whether or not the high watermark
        has moved.
        """
        topics = self._metrics.topics
        for partition, info in appended:
            key = partition.topic_partition
            counts = topics[key.topic]
            counts.produce_requests += 1
            if not info.duplicate:
                counts.messages_in += info.record_count
                counts.bytes_in += info.size
            if partition.sync_required_from != NOTHING_TO_SYNC:
                self._sync(partition)
            self._wake(key)

    def park(
        self,
        timeout_ms: int,
        required_acks: int,
        pending: list[PendingAppend],
        results: dict[TopicPartition, ProduceResult],
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> DelayedProduce:
        """Answer when what is pending is acknowledged, or after the timeout."""
        needs_all = required_acks == ACKS_ALL
        operation = DelayedProduce(timeout_ms, needs_all, pending, results, self, on_done)
        self._produces.try_complete_else_watch(operation, operation.pending)
        return operation

    def count_expired_produces(self, partitions: int) -> None:
        """So many partitions were not acknowledged in time."""
        self._metrics.delayed_produce_expires += partitions

    def _missing(self, key: TopicPartition) -> ErrorCode:
        """Return why a partition is not online here; count it if its topic exists."""
        error = self._registry.why_missing(key)
        if error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._count_refusal(key, error)
        return error

    def _count_refusal(self, topic_partition: TopicPartition, error: ErrorCode) -> None:
        counts = self._metrics.topics[topic_partition.topic]
        counts.produce_requests += 1
        if error not in _EXPECTED:
            counts.failed_produce_requests += 1

    def _failed(
        self, topic_partition: TopicPartition, error: Exception, size: int
    ) -> ProduceResult:
        """Return a partition's result after the exception that is being handled.

        Raises:
            AssertionError: the exception is a broken invariant of ours.
        """
        if isinstance(error, StorageError):
            return self.refused(topic_partition, error, size)
        if isinstance(error, AssertionError):
            raise error
        _log.exception("Unexpected error in an append: partition=%s", topic_partition)
        self._count_refusal(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        return ProduceResult(ErrorCode.UNKNOWN_SERVER_ERROR)

    def refused(
        self, topic_partition: TopicPartition, error: StorageError, size: int
    ) -> ProduceResult:
        """Count and describe records that the log does not take, or cannot take."""
        self._count_refusal(topic_partition, error.error_code)
        if error.error_code in _TOO_LARGE:
            self._metrics.topics[topic_partition.topic].bytes_rejected += size
        if isinstance(error, KafkaStorageError):
            _log.log(log_level_of(error), "append to %s failed: %s", topic_partition, error)
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
                self._take_offline(key)
        elif partition.on_synced(synced_to):
            self._sync(partition)
        self._wake(key)


def _result_of(info: AppendInfo) -> ProduceResult:
    return ProduceResult(
        _NONE, info.first_offset, info.last_offset, info.log_append_time, info.log_start_offset
    )
