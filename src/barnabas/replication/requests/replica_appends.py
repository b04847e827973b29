"""Appends of producers and coordinators (the writing half of Kafka's ReplicaManager).

Several Produce requests that arrived in one read of a connection may be appended jointly. A request
that joins is not executed yet, so no log shows a part of it. `JointAppends.finish` appends the
records of all of them, with one write per partition, and then responds. The caller calls it before
any later request of the connection that could see the difference, and before the receive buffer is
reused: the records are views into it. A request joins only if its append promises to be an ordinary
one. All others are appended alone.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import NO_PRODUCER_ID
from barnabas.replication.partition.leader_role import ACKS_ALL, NOTHING_TO_SYNC
from barnabas.replication.partition.results import ProduceResult
from barnabas.replication.requests.delayed_writes import (
    DeferredAppend,
    DelayedProduce,
    PendingAppend,
)
from barnabas.storage.errors import (
    KafkaStorageError,
    StorageError,
    TopicIsRestoredError,
    log_level_of,
)
from barnabas.storage.log.batch_inspection import InspectionNeededError
from barnabas.storage.results import AppendOrigin
from barnabas.waiting.steps import ImmediateSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import PartitionRegistry
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.replication.requests.delayed_writes import StepQueue
    from barnabas.runtime.clock import Clock
    from barnabas.storage.log.batch_inspection import InspectedRecords, Inspection, JoinedBatch
    from barnabas.storage.log.log import Log
    from barnabas.storage.results import AppendInfo
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.purgatory import Purgatory

    Entry = tuple["_Request", JoinedBatch]

_log = logging.getLogger(__name__)

_ERRORS_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
VALID_ACKS = frozenset({ACKS_ALL, 0, 1})
# Errors that FailedProduceRequestsPerSec does not count, as in Kafka. There,
# ReplicaManager.appendRecordsToLog counts all others, including those of producer epochs and
# sequences.
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
# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


class AppendDependencies(msgspec.Struct, frozen=True):
    """The collaborators and callbacks of `ReplicaAppends`."""

    registry: PartitionRegistry
    metrics: ReplicaMetrics
    clock: Clock
    # Appends that wait for the ISR or for a sync.
    produces: Purgatory
    # Checks all operations that wait for a partition.
    wake: Callable[[TopicPartition], None]
    # Checks the fetches only, after an append that did not move the high watermark.
    wake_fetches: Callable[[TopicPartition], None]
    # Takes a partition offline after a failure of its disk.
    take_offline: Callable[[TopicPartition], None]
    # Queue that inspects records over several turns. None: inspect them at once.
    inspections: StepQueue | None = None
    # Called after an append that closed a segment. None without a remote tier.
    on_roll: Callable[[TopicPartition], None] | None = None


class ReplicaAppends:
    """Appends records at once, and calls back when the append is acknowledged."""

    __slots__ = (
        "_clock",
        "_inspections",
        "_metrics",
        "_on_roll",
        "_produces",
        "_registry",
        "_take_offline",
        "_wake",
        "_wake_fetches",
        "online",
        "read_only_topics",
    )

    def __init__(self, dependencies: AppendDependencies) -> None:
        self._registry = dependencies.registry
        # The registry's own dict: the hot path does one lookup per partition.
        self.online = dependencies.registry.online
        # The registry's own set. Empty on brokers without mirrors.
        self.read_only_topics = dependencies.registry.read_only_topics
        self._metrics = dependencies.metrics
        self._clock = dependencies.clock
        self._produces = dependencies.produces
        self._wake = dependencies.wake
        self._wake_fetches = dependencies.wake_fetches
        self._take_offline = dependencies.take_offline
        self._on_roll = dependencies.on_roll
        queue = dependencies.inspections
        self._inspections = ImmediateSteps() if queue is None else queue

    def partition(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """Return the partition if it is online on this broker, else the error for the client."""
        return self._registry.partition(topic_partition)

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, memoryview | InspectedRecords],
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> DelayedProduce | DeferredAppend | None:
        """Append each entry to its partition, and call back when `required_acks` is fulfilled.

        Args:
            timeout_ms: limit of the wait for acks=all; then REQUEST_TIMED_OUT.
            required_acks: 0, 1 or -1. Other values are INVALID_REQUIRED_ACKS for existing
                partitions.
            entries: one writable record set each, patched in place. No view is kept.
            origin: the kind of writer.
            on_done: gets one result per entry; may be called before this returns.

        Returns:
            The pending operation (waiting for replicas or for an inspection), or None if it was
            answered at once.
        """
        if required_acks not in VALID_ACKS:
            self._refuse_acks(entries, on_done)
            return None
        now_ms = self._clock.wall_ms()
        results: dict[TopicPartition, ProduceResult] = {}
        appended: list[tuple[Partition, Sequence[AppendInfo]]] = []
        pending: list[PendingAppend] = []
        deferred: dict[TopicPartition, Inspection] | None = None
        read_only = self.read_only_topics
        for key, records in entries.items():
            partition = self.online.get(key)
            if partition is None:
                results[key] = ProduceResult(self._missing(key))
                continue
            leader = partition.leader
            if leader is None:
                results[key] = self._refusal(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            if read_only and key.topic in read_only and origin is not AppendOrigin.PROMOTION:
                results[key] = self._refuse_mirror(key, origin)
                continue
            try:
                info = leader.append(records, origin, required_acks, now_ms)
            except InspectionNeededError as needed:
                deferred = {**(deferred or {}), key: needed.inspection}
                continue
            except Exception as error:  # noqa: BLE001 - the request's other partitions are still handled
                results[key] = self.failed(key, error, records.nbytes, origin)
                continue
            if isinstance(info, ErrorCode):
                results[key] = self._refusal(key, info)
                continue
            appended.append((partition, (info,)))
            result = results[key] = result_of(info)
            if leader.must_wait(required_acks, info):
                pending.append(PendingAppend(key, info.last_offset + 1, result))
        if deferred is not None:
            self.after_append(appended)
            later = DeferredAppend(self, required_acks, timeout_ms, origin, on_done)
            return later.begin(deferred, results, pending, self._inspections)
        if pending:
            self.after_append(appended)
            return self.wait_for_acks(timeout_ms, required_acks, pending, results, on_done)
        # Send the response first: the requests that are woken do not depend on it.
        on_done(results)
        self.after_append(appended)
        return None

    def _refuse_mirror(self, key: TopicPartition, origin: AppendOrigin) -> ProduceResult:
        """Return the result of an append to a topic that mirrors a topic of another cluster.

        Clients do not retry INVALID_REQUEST. The marker of a transaction has nothing to end here,
        since records of the transaction are refused too, so it counts as written.
        """
        if origin is not AppendOrigin.CLIENT:
            return ProduceResult(_NONE)
        result = self._refusal(key, ErrorCode.INVALID_REQUEST)
        result.error_message = (
            f"{key.topic} is a read-only mirror of a topic in another cluster: produce to that "
            "cluster, or promote the mirror by `barnabas links promote`"
        )
        return result

    def _refuse_restored(
        self, key: TopicPartition, error: TopicIsRestoredError, origin: AppendOrigin
    ) -> ProduceResult:
        """Return the result of an append to a topic that is being restored, as for a mirror."""
        if origin is not AppendOrigin.CLIENT:
            return ProduceResult(_NONE)
        result = self._refusal(key, error.error_code)
        result.error_message = f"{key}: {error}"
        return result

    def _refuse_acks(
        self,
        entries: Iterable[TopicPartition],
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        refused = dict.fromkeys(entries, ErrorCode.INVALID_REQUIRED_ACKS)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for key in entries:
            if key not in self.online and self._registry.missing_error(key) is unknown:
                refused[key] = unknown
        on_done({key: ProduceResult(error) for key, error in refused.items()})

    def after_append(self, appended: Sequence[tuple[Partition, Sequence[AppendInfo]]]) -> None:
        """Count, start the syncs that are due, and check waiting consumers and followers.

        Followers wait for the log end offset, so this check runs even if the high watermark did not
        move.
        """
        topics = self._metrics.topics
        for partition, infos in appended:
            key = partition.topic_partition
            counts = topics[key.topic]
            needs_flush = False
            counts.produce_requests += len(infos)
            for info in infos:
                # All three are 0 or false for a duplicate.
                counts.messages_in += info.record_count
                counts.bytes_in += info.size
                needs_flush = needs_flush or info.needs_flush
            if needs_flush:
                self._maybe_sync(partition)
            if self._on_roll is not None and any(info.rolled for info in infos):
                self._on_roll(key)
            if infos[-1].moved_high_watermark:
                self._wake(key)
            else:
                self._wake_fetches(key)

    def wait_for_acks(
        self,
        timeout_ms: int,
        required_acks: int,
        pending: list[PendingAppend],
        results: dict[TopicPartition, ProduceResult],
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> DelayedProduce:
        """Respond when all pending appends are acknowledged, or after the timeout."""
        needs_all = required_acks == ACKS_ALL
        operation = DelayedProduce(timeout_ms, needs_all, pending, results, self, on_done)
        self._produces.watch(operation, operation.pending)
        # The checks after the append may have completed other requests, which changed partitions.
        operation.try_complete()
        return operation

    def count_expired_produces(self, partitions: int) -> None:
        """Count the partitions of a produce request that timed out."""
        self._metrics.delayed_produce_expires += partitions

    def _missing(self, key: TopicPartition) -> ErrorCode:
        """Return the error of a partition that is not online here. Count it if its topic exists."""
        error = self._registry.missing_error(key)
        if error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._count_refusal(key, error)
        return error

    def _refusal(self, topic_partition: TopicPartition, error: ErrorCode) -> ProduceResult:
        """Count a refused append. Return its result."""
        self._count_refusal(topic_partition, error)
        return ProduceResult(error)

    def _count_refusal(self, topic_partition: TopicPartition, error: ErrorCode) -> None:
        counts = self._metrics.topics[topic_partition.topic]
        counts.produce_requests += 1
        if error not in _EXPECTED:
            counts.failed_produce_requests += 1

    def failed(
        self,
        topic_partition: TopicPartition,
        error: Exception,
        size: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> ProduceResult:
        """Return a partition's result after an exception of its append.

        Raises:
            AssertionError: if the exception is a broken invariant.
        """
        if isinstance(error, TopicIsRestoredError):
            return self._refuse_restored(topic_partition, error, origin)
        if isinstance(error, StorageError):
            return self.refused(topic_partition, error, size)
        if isinstance(error, AssertionError):
            raise error
        _log.error("Unexpected error in an append: partition=%s", topic_partition, exc_info=error)
        self._count_refusal(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        return ProduceResult(ErrorCode.UNKNOWN_SERVER_ERROR)

    def refused(
        self, topic_partition: TopicPartition, error: StorageError, size: int
    ) -> ProduceResult:
        """Count and describe records that the log rejects or cannot append."""
        self._count_refusal(topic_partition, error.error_code)
        if error.error_code in _TOO_LARGE:
            self._metrics.topics[topic_partition.topic].bytes_rejected += size
        if isinstance(error, KafkaStorageError):
            _log.log(
                log_level_of(error), "Append failed: partition=%s error=%s", topic_partition, error
            )
        result = ProduceResult(error.error_code)
        # As in Kafka: an error message only for errors of single records. The log start offset is
        # sent only if the log is intact and the records are neither too large nor corrupt.
        result.record_errors = tuple(getattr(error, "record_errors", ()))
        if result.record_errors:
            result.error_message = str(error)
        partition = self.online.get(topic_partition)
        if partition is not None and error.error_code not in _ERRORS_WITHOUT_LOG_START:
            result.log_start_offset = partition.log.log_start_offset
        return result

    def _maybe_sync(self, partition: Partition) -> None:
        """Start the sync that flush.messages requires, unless one is in progress."""
        leader = partition.leader
        if leader is None or leader.sync_required_from == NOTHING_TO_SYNC or partition.is_syncing:
            return
        partition.is_syncing = True
        synced_to = partition.log.log_end_offset
        log = partition.log
        log.sync.flush_async(partial(self._on_synced, partition, (log, synced_to)))

    def _on_synced(
        self, partition: Partition, synced: tuple[Log, int], error: BaseException | None
    ) -> None:
        partition.is_syncing = False
        leader = partition.leader
        key = partition.topic_partition
        log, synced_to = synced
        if log is not partition.log:
            # The log moved to another directory during the sync, and was synced there.
            self._maybe_sync(partition)
        elif error is not None:
            # Do not retry: after a failed sync, the state of the data on disk is unknown.
            _log.error("Sync failed: partition=%s error=%s", key, error)
            if self.online.get(key) is partition:
                self._take_offline(key)
        elif leader is not None and leader.on_synced(synced_to):
            self._maybe_sync(partition)
        self._wake(key)


def result_of(info: AppendInfo) -> ProduceResult:
    """Return the result of a partition after its append."""
    return ProduceResult(
        _NONE, info.first_offset, info.last_offset, info.log_append_time, info.log_start_offset
    )


# Requests of one joint append. A connection may have more in flight, so that collecting requests
# does not pause it.
REQUESTS_MAX = 32


class Producer(Protocol):
    """A Produce request that waits for its response."""

    def on_appended(self, results: dict[TopicPartition, ProduceResult]) -> None:
        """Send the response."""
        ...

    def on_joint_append(self, now_ms: float, must_wait: bool) -> None:
        """Count the time until `now_ms`. `on_appended` follows, now or after the wait."""
        ...

    def wait_for(self, operation: DelayedProduce) -> None:
        """Wait for an append that is not acknowledged yet."""
        ...


class _Request(msgspec.Struct):
    """One request of a joint append."""

    timeout_ms: int
    required_acks: int
    producer: Producer
    # One result for each partition. The append sets them.
    results: dict[TopicPartition, ProduceResult]
    # Appends that are in the log and not yet acknowledged.
    pending: list[PendingAppend]


class JointAppends:
    """The requests that have joined, and their append."""

    __slots__ = ("_appends", "_clock", "_entries", "_online", "_read_only", "_requests")

    def __init__(self, appends: ReplicaAppends, clock: Clock) -> None:
        self._appends = appends
        self._online = appends.online
        self._read_only = appends.read_only_topics
        self._clock = clock
        # In the order of their arrival; at most REQUESTS_MAX. Empty between the reads of
        # connections.
        self._requests: list[_Request] = []
        # The records of these requests by partition, in the order of the requests.
        self._entries: dict[Partition, list[Entry]] = {}

    def join(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, memoryview],
        producer: Producer,
    ) -> bool:
        """Add a client's request to the next joint append.

        Args:
            timeout_ms: limit of the wait for acks=all.
            required_acks: 0, 1 or -1.
            entries: one writable batch each, valid until `finish` returns.
            producer: gets the results from `finish`.

        Returns:
            Whether the request has joined. If not, the caller appends it after `finish`.
        """
        if required_acks not in VALID_ACKS:
            return False
        if len(self._requests) >= REQUESTS_MAX:
            self.finish()
        now_ms = self._clock.wall_ms()
        validated: list[tuple[Partition, JoinedBatch]] = []
        for key, records in entries.items():
            partition = self._online.get(key)
            leader = None if partition is None else partition.leader
            if partition is None or leader is None:
                return False
            if required_acks == ACKS_ALL and leader.is_under_min_isr:
                return False
            if self._read_only and key.topic in self._read_only:
                return False
            header = partition.log.appender.validate_for_joint_append(records, now_ms)
            if header is None:
                return False
            # A rejected sequence would close the connection, and no later request may be executed.
            if not required_acks and header.producer_id != NO_PRODUCER_ID:
                return False
            validated.append((partition, (records, header)))
        request = _Request(timeout_ms, required_acks, producer, {}, [])
        self._requests.append(request)
        for partition, batch in validated:
            self._entries.setdefault(partition, []).append((request, batch))
        return True

    def finish(self) -> None:
        """Append the records of all requests that have joined, and respond in their order."""
        requests, self._requests = self._requests, []
        entries, self._entries = self._entries, {}
        now_ms = self._clock.wall_ms()
        appended: list[tuple[Partition, list[AppendInfo]]] = []
        for partition, part in entries.items():
            infos = self._append(partition, part, now_ms)
            if infos:
                appended.append((partition, infos))
        # Send these responses first: the requests that are woken do not depend on them.
        appended_ms = self._clock.monotonic_ms()
        for request in requests:
            if not request.pending:
                request.producer.on_joint_append(appended_ms, False)
                request.producer.on_appended(request.results)
        self._appends.after_append(appended)
        for request in requests:
            if request.pending:
                request.producer.on_joint_append(appended_ms, True)
                operation = self._appends.wait_for_acks(
                    request.timeout_ms,
                    request.required_acks,
                    request.pending,
                    request.results,
                    request.producer.on_appended,
                )
                request.producer.wait_for(operation)

    def _append(self, partition: Partition, part: list[Entry], now_ms: int) -> list[AppendInfo]:
        """Append to one partition, and set the results. Return what was appended."""
        appends, key, leader = self._appends, partition.topic_partition, partition.leader
        assert leader is not None, f"{key}: a role changes by metadata only"
        outcomes: Sequence[AppendInfo | Exception]
        try:
            outcomes = leader.append_jointly([batch for _, batch in part], now_ms)
        except Exception as error:  # noqa: BLE001 - the other partitions are still handled
            outcomes = [error] * len(part)
        infos: list[AppendInfo] = []
        for (request, (records, _)), info in zip(part, outcomes, strict=True):
            if isinstance(info, Exception):
                request.results[key] = appends.failed(key, info, records.nbytes)
                continue
            infos.append(info)
            result = request.results[key] = result_of(info)
            if leader.must_wait(request.required_acks, info):
                request.pending.append(PendingAppend(key, info.last_offset + 1, result))
        return infos
