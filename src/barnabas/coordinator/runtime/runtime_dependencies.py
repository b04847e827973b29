"""The dependencies of a coordinator runtime, and its access to the logs of state partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.errors import ErrorCode
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import HighWatermarkListeners
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.runtime.clock import Clock, Timer
    from barnabas.runtime.executor import Executor
    from barnabas.storage.results import AppendOrigin
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.timing_wheel import TimingWheel


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


class RuntimeDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies and settings of a coordinator runtime."""

    log: StateLog
    clock: Clock
    timer: Timer
    wheel: TimingWheel
    # Decompresses large batches during loading.
    executor: Executor
    # Time limit of a write until its commit, in ms.
    write_timeout_ms: int = 5_000
    # Whether the writes of one turn of the event loop may share a batch.
    shares_batches: bool = False
    # Compression of the state records (record.compression).
    compression: int = 0
