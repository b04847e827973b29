"""Dependencies of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.metrics.histogram import Histogram
from barnabas.storage.damage import DamageRegister

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.executor import Executor
    from barnabas.runtime.rng import Rng
    from barnabas.runtime.timer import Timer
    from barnabas.runtime.workers.offload import Offload


def _ignore_shortage() -> None:
    """Do nothing, because the caller receives a TooManyOpenFilesError."""


def _ignore_failure(directory: str, error: OSError) -> None:
    """Do nothing, because the caller receives a KafkaStorageError."""


class LogDependencies(msgspec.Struct, frozen=True):
    """Dependencies shared by all logs of a process."""

    disk: Disk
    clock: Clock
    executor: Executor
    timer: Timer
    # For roll jitter and the names of deleted directories.
    rng: Rng
    # Called with the log's directory after a failed file operation, so that the data directory goes
    # offline. The caller also receives a KafkaStorageError.
    on_disk_failure: Callable[[str, OSError], None] = _ignore_failure
    # Called when an operation found no free descriptor, so that idle files can be closed.
    on_descriptor_shortage: Callable[[], None] = _ignore_shortage
    # Where logs are compacted; None means on the loop, in slices.
    offload: Offload | None = None
    # Clock for the expiry of records, producers and offsets; None means `clock`.
    trusted_clock: Clock | None = None
    # Durations of syncs off the loop, in ms.
    flush_times: Histogram = msgspec.field(default_factory=Histogram)
    # Register of damage found in files.
    damage: DamageRegister = msgspec.field(default_factory=DamageRegister)

    @property
    def expiry_clock(self) -> Clock:
        """The clock for the expiry of records, producers and offsets."""
        return self.trusted_clock or self.clock
