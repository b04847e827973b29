"""The access of a coordinator to the logs of its state partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.errors import ErrorCode
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import HighWatermarkListeners
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.storage.results import AppendOrigin
    from barnabas.storage.topic_partition import TopicPartition


class StateLog(Protocol):
    """The part of the replica manager that reads and writes state partitions."""

    @property
    def high_watermark_listeners(self) -> HighWatermarkListeners:
        """Tells when the high watermark of a state partition has moved."""
        ...

    def partition(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """Return the partition if it is online on this broker, else an error."""
        ...

    def confirm_leadership(
        self,
        topic_partition: TopicPartition,
        timeout_ms: float,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Check that no other broker had become the leader when this method was called.

        `on_done` gets NONE or an error, perhaps before this returns.
        """
        ...

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: dict[TopicPartition, memoryview],
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> object:
        """Append records.

        `on_done` is called after commit or failure, perhaps before this returns.
        """
        ...
