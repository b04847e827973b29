"""A broker's partitions and what is asked of them (Kafka's ReplicaManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.errors import ErrorCode
    from barnabas.replication.fetch_params import FetchParams, FetchPartitionData
    from barnabas.replication.partition import Partition
    from barnabas.replication.results import (
        EpochEndOffset,
        FetchResult,
        ListOffsetResult,
        ProduceResult,
    )
    from barnabas.storage.append_info import AppendOrigin
    from barnabas.storage.read_result import FetchIsolation
    from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition


class ReplicaManager:
    """Appends to, reads from and keeps in step the partitions that this broker has a replica of."""

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: dict[TopicPartition, memoryview],
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        """Append each entry to its partition and answer when `required_acks` is fulfilled.

        Args:
            timeout_ms: how long acks=all may wait; then REQUEST_TIMED_OUT.
            required_acks: 0, 1 or -1; anything else is INVALID_REQUIRED_ACKS for all.
            entries: one record set each, writable: offset and epoch are set in place. Nothing
                keeps the view after the call.
            origin: who appends.
            on_done: gets one result per entry; may be called before this returns.
        """
        raise NotImplementedError

    def fetch(
        self,
        params: FetchParams,
        partitions: list[tuple[TopicIdPartition, FetchPartitionData]],
        on_done: Callable[[list[tuple[TopicIdPartition, FetchResult]]], None],
    ) -> None:
        """Read the partitions in order; answer when there is enough or the wait is over.

        Args:
            params: the request as a whole.
            partitions: what is asked, in the order of the request.
            on_done: gets one result per partition, in the same order; may be called before this
                returns.
        """
        raise NotImplementedError

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        isolation: FetchIsolation,
        current_leader_epoch: int,
        only_leader: bool = True,
    ) -> ListOffsetResult:
        """The offset at a timestamp, or at one of Kafka's special ones (-1 to -6).

        OFFSET_NOT_AVAILABLE is for versions >= 5; below the caller says LEADER_NOT_AVAILABLE.

        Args:
            isolation: LOG_END for replicas, else as in a fetch.
            current_leader_epoch: -1 if the request carries none.
            only_leader: False for a debugging consumer (replica id -2).
        """
        raise NotImplementedError

    def epoch_end_offset(
        self, topic_partition: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEndOffset:
        """Where `leader_epoch` ends in the leader's log (OffsetForLeaderEpoch)."""
        raise NotImplementedError

    def partition(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """The partition if this broker has it online, else the error for the asker."""
        raise NotImplementedError
