"""What a log gets handed: the doors to the outside, and what is known of it when it is opened."""

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
    from barnabas.runtime.offload import Offload
    from barnabas.runtime.rng import Rng
    from barnabas.runtime.timer import Timer
    from barnabas.storage.topic_partition import TopicPartition


def _ignore_shortage() -> None:
    """Do nothing: the caller learns of the shortage by TooManyOpenFilesError."""


def _ignore_failure(directory: str, error: OSError) -> None:
    """Nobody listens: the raised KafkaStorageError alone tells."""


class LogDoors(msgspec.Struct, frozen=True):
    """The doors that every log of a process shares."""

    disk: Disk
    clock: Clock
    executor: Executor
    timer: Timer
    # For the jitter of rolls and the names of deleted directories.
    rng: Rng
    # Called once per failed file operation with the log's directory: the data directory is to go
    # offline. A KafkaStorageError is raised besides, to whoever asked.
    on_disk_failure: Callable[[str, OSError], None] = _ignore_failure
    # Called when an operation found no free descriptor: files that are not used may be closed.
    on_descriptor_shortage: Callable[[], None] = _ignore_shortage
    # Where logs are compacted; None: on the loop, in slices.
    offload: Offload | None = None
    # By which records, producers and offsets expire; None: `clock`.
    trusted_clock: Clock | None = None
    # How long syncs took that ran off the loop, ms.
    flush_times: Histogram = msgspec.field(default_factory=Histogram)
    # Damage that was found in files.
    damage: DamageRegister = msgspec.field(default_factory=DamageRegister)

    @property
    def expiry_clock(self) -> Clock:
        """The clock by whose wall time things expire."""
        return self.trusted_clock or self.clock


class LogOpening(msgspec.Struct, frozen=True):
    """What is known of a log before it is opened."""

    topic_partition: TopicPartition
    # 16 bytes; None if unknown, then taken from `partition.metadata` where that exists.
    topic_id: bytes | None = None
    # From `recovery-point-offset-checkpoint`: below it everything was synced.
    recovery_point: int = 0
    # From `log-start-offset-checkpoint`.
    log_start_offset: int = 0
    # From `replication-offset-checkpoint`; held within [log start, log end] when opened.
    high_watermark: int = 0
    # The `.kafka_cleanshutdown` marker was there: nothing needs recovery.
    clean_shutdown: bool = False
    producer_id_expiration_ms: int = 86_400_000
