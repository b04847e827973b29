"""Writes the markers that end a transaction to partitions of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.runtime.coordinator_record import build_end_marker
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.coordinator.runtime.coordinator_record import TransactionEnding
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.clock import Clock
    from barnabas.storage.topic_partition import TopicPartition

_ACKS_ALL = -1
_TIMEOUT_MS = 30_000
# Markers to write in one turn of the event loop: each takes 0.2 ms.
WRITTEN_AT_ONCE = 20
# Errors of a group coordinator that is on another broker or not ready. As in Kafka, the sender
# finds the leader again.
_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class MarkerWriter:
    """Appends markers. The group coordinator appends the markers for committed offsets."""

    __slots__ = ("_clock", "_groups", "_replicas")

    def __init__(self, replicas: ReplicaManager, groups: GroupCoordinator, clock: Clock) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    def write(
        self,
        ending: TransactionEnding,
        partitions: Iterable[TopicPartition],
        on_result: Callable[[TopicPartition, ErrorCode], None],
    ) -> None:
        """Append the marker to partitions that exist.

        Args:
            ending: the marker.
            partitions: the partitions.
            on_result: called once for each partition, with NONE after the commit of its marker.
        """
        batches: dict[TopicPartition, memoryview] = {}
        now_ms = self._clock.wall_ms()
        for partition in partitions:
            if partition.topic == OFFSETS_TOPIC:
                self._end_offsets(ending, partition, on_result)
            else:
                batches[partition] = memoryview(build_end_marker(ending, now_ms))
        if not batches:
            return

        def on_appended(results: dict[TopicPartition, ProduceResult]) -> None:
            for partition, result in results.items():
                on_result(partition, result.error)

        self._replicas.append_records(_TIMEOUT_MS, _ACKS_ALL, batches, ending.origin, on_appended)

    def _end_offsets(
        self,
        ending: TransactionEnding,
        partition: TopicPartition,
        on_result: Callable[[TopicPartition, ErrorCode], None],
    ) -> None:
        def on_done(error: ErrorCode) -> None:
            is_ready = error not in _NOT_READY
            on_result(partition, error if is_ready else ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self._groups.runtime.complete_transaction(partition.partition, ending, on_done)
