"""Periodic tasks of a share shard: snapshots of cold share partitions, deletion of old records.

They run only while share groups are enabled, as in Kafka.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.runtime.shards.shard_context import ShardContext
    from barnabas.coordinator.share.config import ShareCoordinatorConfig
    from barnabas.coordinator.share.share_partition_key import SharePartitionKey
    from barnabas.coordinator.share.share_shard import ShareShard
    from barnabas.storage.topic_partition import TopicPartition

    # Deletes the records below an offset; calls its last argument once with the result.
    DeleteRecords = Callable[[TopicPartition, int, Callable[[ErrorCode], None]], None]

_log = logging.getLogger(__name__)

_PRUNE, _SNAPSHOT = "prune", "snapshot cold share partitions"
# Limits of one batch of snapshots: share partitions, and state batches beyond which none is added.
_SNAPSHOTS_MAX = 100
_STATE_BATCHES = 2_000
# Errors of a state partition that has moved to another broker.
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class ShareTasks:
    """The periodic tasks of one state partition, in one leader epoch."""

    __slots__ = (
        "_config",
        "_context",
        "_delete_records",
        "_is_enabled",
        "_remaining",
        "_shard",
        "pruned_offset",
    )

    _shard: ShareShard

    def __init__(
        self,
        context: ShardContext,
        config: ShareCoordinatorConfig,
        is_enabled: Callable[[], bool],
        delete_records: DeleteRecords,
    ) -> None:
        """Create the tasks. `start` schedules them.

        Args:
            context: the state partition and its timers.
            config: the intervals.
            is_enabled: returns whether share groups are enabled.
            delete_records: deletes records of the state partition.
        """
        self._context = context
        self._config = config
        self._is_enabled = is_enabled
        self._delete_records = delete_records
        # Share partitions that the current run of snapshots has not reached yet.
        self._remaining: list[SharePartitionKey] = []
        # Records below this offset are deleted; -1 before the first deletion. Only increases.
        self.pruned_offset = -1

    def start(self, shard: ShareShard) -> None:
        """Schedule the tasks of a loaded shard."""
        self._shard = shard
        self._schedule_prune()
        self._schedule_snapshots(self._interval_ms)

    # Deletion of redundant records.

    def _schedule_prune(self) -> None:
        delay_ms = self._config.share_coordinator_state_topic_prune_interval_ms
        self._context.timers.schedule(_PRUNE, delay_ms, self._prune)

    def _prune(self) -> CoordinatorResult[None]:
        self._schedule_prune()
        end_offset = self._shard.redundant.end_offset
        if not self._is_enabled() or end_offset <= max(self.pruned_offset, 0):
            return CoordinatorResult(None)
        # The snapshots must be committed before the older records are deleted.
        return CoordinatorResult(None, on_appended=partial(self._on_prunable, end_offset))

    def _on_prunable(self, end_offset: int, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            key = self._context.topic_partition
            self._delete_records(key, end_offset, partial(self._on_pruned, end_offset))

    def _on_pruned(self, end_offset: int, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self.pruned_offset = max(self.pruned_offset, end_offset)
        elif error not in _MOVED:
            _log.error(
                "Redundant records could not be deleted: partition=%s end_offset=%d error=%s",
                self._context.topic_partition,
                end_offset,
                error.name,
            )

    # Snapshots of cold share partitions.

    @property
    def _interval_ms(self) -> int:
        return self._config.share_coordinator_cold_partition_snapshot_interval_ms

    def _schedule_snapshots(self, delay_ms: float) -> None:
        self._context.timers.schedule(_SNAPSHOT, delay_ms, self._snapshot_cold)

    def _snapshot_cold(self) -> CoordinatorResult[None]:
        """Append the snapshots of some share partitions; the next turn continues."""
        shard = self._shard
        if not self._remaining and self._is_enabled() and shard.has_cold_partitions:
            self._remaining = list(shard.partitions)
        records = shard.snapshot_cold(self._take(), self._interval_ms)
        self._schedule_snapshots(0 if self._remaining else self._interval_ms)
        return CoordinatorResult(None, records, on_appended=self._on_snapshots)

    def _take(self) -> list[SharePartitionKey]:
        """Remove and return as many share partitions as one batch may have."""
        taken: list[SharePartitionKey] = []
        state_batches = 0
        while self._remaining and len(taken) < _SNAPSHOTS_MAX and state_batches < _STATE_BATCHES:
            key = self._remaining.pop()
            known = self._shard.partitions.get(key)
            if known is not None:
                taken.append(key)
                state_batches += len(known.state.state_batches)
        return taken

    def _on_snapshots(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE and error not in _MOVED:
            _log.error(
                "Snapshots of cold share partitions could not be written: partition=%s error=%s",
                self._context.topic_partition,
                error.name,
            )
