"""Appends that wait for the ISR or for a sync (Kafka's DelayedProduce)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.waiting.purgatory import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.storage.topic_partition import TopicPartition


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
        """Answer with the results of all partitions."""
        self._on_done(self._results)

    def on_expiration(self) -> None:
        """Count the undecided partitions as timed out."""
        self._source.count_expired_produces(len(self.pending))
