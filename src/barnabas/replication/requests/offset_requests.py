"""Requests about offsets: ListOffsets, OffsetForLeaderEpoch and DeleteRecords.

Part of Kafka's ReplicaManager.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.links.source_offsets import LINK_TIMESTAMPS
from barnabas.replication.partition.offset_lookup import list_offset, offsets_before
from barnabas.replication.partition.results import (
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    EpochEndOffset,
    ListOffsetResult,
)
from barnabas.replication.requests.delayed_writes import (
    DelayedDeleteRecords,
    DeleteRecordsResult,
    PendingDelete,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.replication.links.source_offsets import LinkSources
    from barnabas.replication.partition.partition_registry import PartitionRegistry
    from barnabas.runtime.clock import Clock
    from barnabas.storage.results import FetchIsolation
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.purgatory import Purgatory
    from barnabas.waiting.steps import OffLoop

_log = logging.getLogger(__name__)

# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


class OffsetRequests:
    """Looks up offsets and epochs in the replicas of this broker, and deletes records."""

    __slots__ = ("_clock", "_deletes", "_registry", "_sources", "_wake")

    def __init__(
        self,
        registry: PartitionRegistry,
        sources: LinkSources,
        deletes: Purgatory,
        clock: Clock,
        wake: Callable[[TopicPartition], None],
    ) -> None:
        """Create the requests of a broker.

        Args:
            registry: the partitions of the broker.
            sources: offsets of the sources of mirrors.
            deletes: DeleteRecords requests that wait for followers.
            clock: the clock of the broker.
            wake: checks the operations that wait for a partition.
        """
        self._registry = registry
        self._sources = sources
        self._deletes = deletes
        self._clock = clock
        self._wake = wake

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        isolation: FetchIsolation,
        current_leader_epoch: int,
        only_leader: bool = True,
    ) -> Generator[OffLoop | None, Any, ListOffsetResult]:
        """Return the offset at a timestamp, or at a special timestamp (-1 to -6), in steps.

        OFFSET_NOT_AVAILABLE is for versions >= 5; the caller translates it for lower versions.

        Args:
            isolation: LOG_END for replicas, else as in a fetch.
            current_leader_epoch: -1 if the request carries none.
            only_leader: False for a debugging consumer (replica id -2).
        """
        partition = self._registry.partition(topic_partition)
        if isinstance(partition, ErrorCode):
            return ListOffsetResult(partition)
        if current_leader_epoch < UNKNOWN_EPOCH:
            # A fetch, in contrast, treats such an epoch as absent.
            return ListOffsetResult(ErrorCode.FENCED_LEADER_EPOCH)
        try:
            error = partition.check_access(current_leader_epoch, only_leader)
            if error is not _NONE:
                return ListOffsetResult(error)
            if timestamp in LINK_TIMESTAMPS:
                return self._sources.find(partition, timestamp)
            return (yield from list_offset(partition, timestamp, isolation))
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the request's other partitions are still handled
            return ListOffsetResult(_unexpected_error("offset lookup", topic_partition))

    def offsets_before(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        count_max: int,
        isolation: FetchIsolation,
        only_leader: bool = True,
    ) -> list[int] | ErrorCode:
        """Return the offsets for ListOffsets v0, see `offset_lookup.offsets_before`."""
        partition = self._registry.partition(topic_partition)
        if isinstance(partition, ErrorCode):
            return partition
        now_ms = self._clock.wall_ms()
        try:
            error = partition.check_access(UNKNOWN_EPOCH, only_leader)
            if error is not _NONE:
                return error
            return offsets_before(partition, timestamp, count_max, isolation, now_ms)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the request's other partitions are still handled
            return _unexpected_error("offset lookup", topic_partition)

    def epoch_end_offset(
        self, topic_partition: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEndOffset:
        """Return the end offset of `leader_epoch` in the leader's log (OffsetForLeaderEpoch)."""
        partition = self._registry.partition(topic_partition)
        if isinstance(partition, ErrorCode):
            return EpochEndOffset(UNKNOWN_EPOCH, UNKNOWN_OFFSET, partition)
        if current_leader_epoch < UNKNOWN_EPOCH:
            return EpochEndOffset(UNKNOWN_EPOCH, UNKNOWN_OFFSET, ErrorCode.FENCED_LEADER_EPOCH)
        try:
            return partition.epoch_end_offset(current_leader_epoch, leader_epoch, only_leader=True)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the request's other partitions are still handled
            error = _unexpected_error("epoch end lookup", topic_partition)
            return EpochEndOffset(UNKNOWN_EPOCH, UNKNOWN_OFFSET, error)

    def delete_records(
        self,
        timeout_ms: int,
        offsets: dict[TopicPartition, int],
        on_done: Callable[[dict[TopicPartition, DeleteRecordsResult]], None],
    ) -> DelayedDeleteRecords:
        """Delete records below each offset (-1: high watermark), here and on live followers.

        Args:
            on_done: gets one result per partition; may be called before this returns.

        Returns:
            The operation, which may be complete already.
        """
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        pending: list[PendingDelete] = []
        for key, offset in offsets.items():
            result = results[key] = DeleteRecordsResult()
            partition = self._registry.partition(key)
            if isinstance(partition, ErrorCode):
                result.error = partition
                continue
            if key.topic in self._registry.read_only_topics:
                result.error = ErrorCode.POLICY_VIOLATION
                continue
            try:
                leader = partition.leader
                started_at: int | ErrorCode = (
                    ErrorCode.NOT_LEADER_OR_FOLLOWER
                    if leader is None
                    else leader.delete_records(offset)
                )
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - the request's other partitions are still handled
                started_at = _unexpected_error("record deletion", key)
            if isinstance(started_at, ErrorCode):
                result.error = started_at
            else:
                pending.append(PendingDelete(key, started_at, result))
        for each in pending:
            self._wake(each.topic_partition)
        operation = DelayedDeleteRecords(timeout_ms, pending, results, self._registry, on_done)
        keys = [each.topic_partition for each in pending]
        self._deletes.try_complete_else_watch(operation, keys)
        return operation


def _unexpected_error(action: str, key: TopicPartition) -> ErrorCode:
    """Log the exception that is being handled. Return the error code of its partition."""
    _log.exception("Unexpected error in %s: partition=%s", action, key)
    return ErrorCode.UNKNOWN_SERVER_ERROR
