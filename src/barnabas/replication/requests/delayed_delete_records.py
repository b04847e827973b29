"""DeleteRecords requests that wait for every live replica (Kafka's DelayedDeleteRecords)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.results import UNKNOWN_OFFSET
from barnabas.waiting.purgatory import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.requests.delayed_produce import PartitionLookup
    from barnabas.storage.topic_partition import TopicPartition


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
        """Answer with the results of all partitions."""
        self._on_done(self._results)
