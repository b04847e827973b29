"""The dependencies and settings of a coordinator runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.runtime.state_log import StateLog
    from barnabas.runtime.clock import Clock, Timer
    from barnabas.runtime.executor import Executor
    from barnabas.waiting.timing_wheel import TimingWheel


class RuntimeDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies and settings of a coordinator runtime."""

    log: StateLog
    # Returns the number of partitions of a topic, or 0 if the topic does not exist.
    partition_count: Callable[[str], int]
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
