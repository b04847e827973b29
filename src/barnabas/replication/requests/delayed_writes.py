"""Requests that wait after a write: Kafka's DelayedProduce and DelayedDeleteRecords.

An append waits for the ISR or for a sync. A *deferred* append comes before: its records need an
inspection over several turns of the event loop. Other partitions accept appends during the
inspection. Leadership, ISR and disk are checked after the inspection, as for any append.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.results import UNKNOWN_OFFSET
from barnabas.storage.log.batch_inspection import InspectedRecords
from barnabas.waiting.purgatory import CanceledTogether, DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.storage.log.batch_inspection import Inspection
    from barnabas.storage.results import AppendOrigin
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.purgatory import Cancellable
    from barnabas.waiting.steps import Steps

    Outcome = InspectedRecords | Exception


class PartitionLookup(Protocol):
    """Finds online partitions."""

    def partition(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """Return the partition if it is online on this broker, else the error for the client."""
        ...


class ProduceSource(PartitionLookup, Protocol):
    """The part of `ReplicaAppends` that pending appends use."""

    def count_expired_produces(self, partitions: int) -> None:
        """Count the partitions of a produce request that timed out."""
        ...


class PendingAppend(msgspec.Struct):
    """One partition of a request, appended and not yet acknowledged."""

    topic_partition: TopicPartition
    # Exclusive end offset. The append is acknowledged when the high watermark (for acks=1: the
    # sync) reaches it.
    required_offset: int
    # The result for the response. Its error is set when the append is decided.
    result: ProduceResult
    is_decided: bool = False


class DelayedProduce(DelayedOperation):
    """Answers when every partition is decided.

    If this broker no longer leads a partition, or no longer has it online, the partition gets that
    error. If the required offset is reached, it gets NONE or NOT_ENOUGH_REPLICAS_AFTER_APPEND.
    After the timeout, it gets REQUEST_TIMED_OUT.
    """

    __slots__ = ("_needs_all", "_on_done", "_pending", "_results", "_source")

    def __init__(
        self,
        timeout_ms: int,
        needs_all: bool,
        pending: list[PendingAppend],
        results: dict[TopicPartition, ProduceResult],
        source: ProduceSource,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        super().__init__(timeout_ms)
        # Whether acks=all is required. Otherwise the append waits only for a sync.
        self._needs_all = needs_all
        self._pending = pending
        # Results of all partitions of the request, including the pending ones.
        self._results = results
        self._source = source
        self._on_done = on_done
        for append in pending:
            append.result.error = ErrorCode.REQUEST_TIMED_OUT

    @property
    def pending(self) -> list[TopicPartition]:
        """The partitions that are not yet decided."""
        return [each.topic_partition for each in self._pending if not each.is_decided]

    def try_complete(self) -> bool:
        """Update the pending partitions, and complete if all are decided."""
        undecided = False
        for append in self._pending:
            if append.is_decided:
                continue
            error = self._decision(append)
            if error is None:
                undecided = True
            else:
                append.is_decided = True
                append.result.error = error
        return False if undecided else self.force_complete()

    def _decision(self, append: PendingAppend) -> ErrorCode | None:
        partition = self._source.partition(append.topic_partition)
        if isinstance(partition, ErrorCode):
            return partition
        leader = partition.leader
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._needs_all:
            return leader.check_enough_replicas(append.required_offset)
        is_synced = leader.acknowledged_end_offset >= append.required_offset
        return ErrorCode.NONE if is_synced else None

    def on_complete(self) -> None:
        """Respond with the results of all partitions."""
        self._on_done(self._results)

    def on_expiration(self) -> None:
        """Count the undecided partitions as timed out."""
        self._source.count_expired_produces(len(self.pending))


class StepQueue(Protocol):
    """Runs work in steps between the turns of the event loop. The server provides it."""

    def submit(self, lane: object, steps: Steps, on_done: Callable[[Outcome], None]) -> object:
        """Run `steps` and pass the result to `on_done`. Jobs of one lane keep their order."""
        ...


class Appender(Protocol):
    """The part of `ReplicaAppends` that a deferred append uses."""

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: dict[TopicPartition, InspectedRecords],
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> Cancellable | None:
        """Append the inspected records and call `on_done`, see `ReplicaAppends`."""
        ...

    def failed(self, topic_partition: TopicPartition, error: Exception, size: int) -> ProduceResult:
        """Count and return the result of an append that failed."""
        ...

    def wait_for_acks(
        self,
        timeout_ms: int,
        required_acks: int,
        pending: list[PendingAppend],
        results: dict[TopicPartition, ProduceResult],
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> Cancellable:
        """Respond when all pending appends are acknowledged."""
        ...


class DeferredAppend:
    """Waits for the inspections of one request, appends the records, and calls `on_done`."""

    __slots__ = (
        "_appender",
        "_is_done",
        "_on_done",
        "_origin",
        "_outcomes",
        "_pending",
        "_required_acks",
        "_results",
        "_sizes",
        "_timeout_ms",
        "_waiting",
    )

    def __init__(
        self,
        appender: Appender,
        required_acks: int,
        timeout_ms: int,
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        self._appender = appender
        self._required_acks = required_acks
        self._timeout_ms = timeout_ms
        self._origin = origin
        self._on_done = on_done
        # Results of the partitions that needed no inspection, and their unacknowledged appends.
        self._results: dict[TopicPartition, ProduceResult] = {}
        self._pending: list[PendingAppend] = []
        # Size of the inspected records in bytes, by partition.
        self._sizes: dict[TopicPartition, int] = {}
        self._outcomes: dict[TopicPartition, Outcome] = {}
        # The operations that wait for the other replicas after the append.
        self._waiting = CanceledTogether()
        # Whether `on_done` was called. Never reset.
        self._is_done = False

    def begin(
        self,
        inspections: dict[TopicPartition, Inspection],
        results: dict[TopicPartition, ProduceResult],
        pending: list[PendingAppend],
        queue: StepQueue,
    ) -> DeferredAppend | None:
        """Start the inspections. Return None if the request is complete already."""
        self._results, self._pending = results, pending
        self._sizes = {key: len(inspection) for key, inspection in inspections.items()}
        for key, inspection in inspections.items():
            queue.submit(key, inspection.outcome(), partial(self._on_inspected, key))
        return None if self._is_done else self

    def cancel(self) -> None:
        """Do not wait for the other replicas, since the client is gone.

        As in Kafka, the records are appended even so.
        """
        self._waiting.cancel()

    def _on_inspected(self, key: TopicPartition, outcome: Outcome) -> None:
        self._outcomes[key] = outcome
        if len(self._outcomes) == len(self._sizes):
            self._append()

    def _append(self) -> None:
        entries: dict[TopicPartition, InspectedRecords] = {}
        for key, outcome in self._outcomes.items():
            if isinstance(outcome, InspectedRecords):
                entries[key] = outcome
            else:
                self._results[key] = self._appender.failed(key, outcome, self._sizes[key])
        self._outcomes = {}
        if entries:
            self._wait_for(
                self._appender.append_records(
                    self._timeout_ms, self._required_acks, entries, self._origin, self._on_appended
                )
            )
        else:
            self._on_appended({})

    def _on_appended(self, results: dict[TopicPartition, ProduceResult]) -> None:
        self._results.update(results)
        if self._pending:
            self._wait_for(
                self._appender.wait_for_acks(
                    self._timeout_ms,
                    self._required_acks,
                    self._pending,
                    self._results,
                    self._complete,
                )
            )
        else:
            self._complete(self._results)

    def _wait_for(self, operation: Cancellable | None) -> None:
        if operation is not None:
            self._waiting.add(operation)

    def _complete(self, results: dict[TopicPartition, ProduceResult]) -> None:
        self._is_done = True
        self._on_done(results)


class DeleteRecordsResult(msgspec.Struct):
    """The result for one partition."""

    error: ErrorCode = ErrorCode.NONE
    # The smallest log start offset of the live replicas. -1 with an error.
    low_watermark: int = UNKNOWN_OFFSET


class PendingDelete(msgspec.Struct):
    """One partition whose low watermark has not reached the required offset."""

    topic_partition: TopicPartition
    required_offset: int
    result: DeleteRecordsResult
    is_decided: bool = False


class DelayedDeleteRecords(DelayedOperation):
    """Answers when the low watermark of every partition has reached its required offset."""

    __slots__ = ("_lookup", "_on_done", "_pending", "_results")

    def __init__(
        self,
        timeout_ms: int,
        pending: list[PendingDelete],
        results: dict[TopicPartition, DeleteRecordsResult],
        lookup: PartitionLookup,
        on_done: Callable[[dict[TopicPartition, DeleteRecordsResult]], None],
    ) -> None:
        super().__init__(timeout_ms)
        self._pending = pending
        self._results = results
        self._lookup = lookup
        self._on_done = on_done
        for each in pending:
            each.result.error = ErrorCode.REQUEST_TIMED_OUT

    def try_complete(self) -> bool:
        """Update the pending partitions, and complete if all are decided."""
        undecided = False
        for each in self._pending:
            if not each.is_decided and not self._decide(each):
                undecided = True
        return False if undecided else self.force_complete()

    def _decide(self, pending: PendingDelete) -> bool:
        partition = self._lookup.partition(pending.topic_partition)
        if isinstance(partition, ErrorCode):
            pending.result.error = partition
        elif partition.leader is None:
            pending.result.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            low_watermark = partition.leader.low_watermark
            if low_watermark < pending.required_offset:
                return False
            pending.result.error = ErrorCode.NONE
            pending.result.low_watermark = low_watermark
        pending.is_decided = True
        return True

    def on_complete(self) -> None:
        """Respond with the results of all partitions."""
        self._on_done(self._results)
