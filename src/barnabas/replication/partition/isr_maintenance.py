"""Shrinks ISRs and sends proposals to the controller.

Kafka's isr-expiration task and AlterPartitionManager.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.leader_role import AnswerOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.replication.partition.isr import (
        AlterPartitionProposal,
        AlterPartitionResult,
        AlterPartitionSender,
    )
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

_RETRY_MS = 50


class IsrMaintenance:
    """Checks for lagging followers twice per replica.lag.time.max.ms, and sends proposals."""

    __slots__ = (
        "_entry",
        "_interval_ms",
        "_metrics",
        "_on_moved",
        "_partitions",
        "_sender",
        "_wheel",
    )

    def __init__(
        self,
        lag_time_max_ms: int,
        wheel: TimingWheel,
        sender: AlterPartitionSender,
        metrics: ReplicaMetrics,
        partitions: Callable[[], Iterable[Partition]],
        on_moved: Callable[[TopicPartition], None],
    ) -> None:
        self._interval_ms = lag_time_max_ms / 2
        self._wheel = wheel
        self._sender = sender
        self._metrics = metrics
        self._partitions = partitions
        # Called after the controller's response moved a high watermark.
        self._on_moved = on_moved
        self._entry: WheelEntry | None = None

    def start(self) -> None:
        """Start the periodic checks."""
        self._entry = self._wheel.add(self._interval_ms, self._on_interval)

    def stop(self) -> None:
        """Stop the periodic checks."""
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None

    def _on_interval(self) -> None:
        self.start()
        for partition in list(self._partitions()):
            leader = partition.leader
            # On a single broker, most partitions have no other replica.
            if leader is None or not leader.remote_replicas:
                continue
            proposal = leader.maybe_shrink_isr()
            if proposal is not None:
                self.propose(partition, proposal)

    def propose(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        """Send a proposal. Retry it while it is in flight and the controller is unavailable."""
        before = len(partition.isr)
        self._sender.submit(proposal, partial(self._on_result, partition, proposal, before))

    def _on_result(
        self,
        partition: Partition,
        proposal: AlterPartitionProposal,
        before: int,
        result: AlterPartitionResult,
    ) -> None:
        leader = partition.leader
        if leader is None:
            outcome = AnswerOutcome(moved=False, retry=False)
        else:
            outcome = leader.on_alter_partition_result(proposal, result)
        if outcome.retry:
            self._wheel.add(_RETRY_MS, partial(self._retry, partition, proposal))
            return
        if result.error is ErrorCode.NONE:
            # Count the change even if metadata has already delivered it.
            self._metrics.count_isr_change(len(result.isr) - before)
        else:
            self._metrics.failed_isr_updates += 1
        if outcome.moved:
            self._on_moved(partition.topic_partition)

    def _retry(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        leader = partition.leader
        if leader is not None and leader.is_waiting_for(proposal):
            self.propose(partition, proposal)
