"""Appends that wait to be acknowledged: for the ISR, or for a sync (Kafka's DelayedProduce)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.waiting.delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition import Partition
    from barnabas.replication.results import ProduceResult
    from barnabas.storage.topic_partition import TopicPartition


class PartitionLookup(Protocol):
    """Where partitions are found."""

    def partition(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """The partition if it is online here, else the error for the asker."""
        ...


class ProduceSource(PartitionLookup, Protocol):
    """Where waiting appends come from."""

    def count_expired_produces(self, partitions: int) -> None:
        """So many partitions were not acknowledged in time."""
        ...


class PendingAppend(msgspec.Struct):
    """One partition of the request that is appended and not yet acknowledged."""

    topic_partition: TopicPartition
    # Exclusive: acknowledged once the high watermark, or for acks=1 the sync, has reached it.
    required_offset: int
    # The answer; its error is set when it is decided.
    result: ProduceResult
    is_decided: bool = False


class DelayedProduce(DelayedOperation):
    """Answers when every partition is decided.

    Per partition: this broker does not lead it any more, or cannot find it: that error. The
    required offset is reached: no error, or NOT_ENOUGH_REPLICAS_AFTER_APPEND. Time over:
    REQUEST_TIMED_OUT.
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
        # acks=all; else only a sync is waited for.
        self._needs_all = needs_all
        self._pending = pending
        # Of all partitions of the request, the pending ones among them.
        self._results = results
        self._source = source
        self._on_done = on_done
        for append in pending:
            append.result.error = ErrorCode.REQUEST_TIMED_OUT

    @property
    def pending(self) -> list[TopicPartition]:
        """The partitions that are still waited for."""
        return [each.topic_partition for each in self._pending if not each.is_decided]

    def try_complete(self) -> bool:
        """Decide what can be decided."""
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
        if self._needs_all:
            return partition.check_enough_replicas(append.required_offset)
        if not partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        is_synced = partition.acknowledged_end_offset >= append.required_offset
        return ErrorCode.NONE if is_synced else None

    def on_complete(self) -> None:
        """Answer all partitions, those decided at once too."""
        self._on_done(self._results)

    def on_expiration(self) -> None:
        """What is undecided has timed out."""
        self._source.count_expired_produces(len(self.pending))
