"""Dependencies of a log, facts that are known before it is opened, and the guard of its files.

The guard raises every failure of the disk and reports only the first; nothing is retried. It
reports damage once per place. A missing descriptor is not a disk failure. If the operation has
changed nothing, or can be repeated, it is rejected and the log stays in use.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import msgspec

from barnabas.metrics.measurements import Histogram
from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.errors import (
    DamagedLogError,
    DamageKind,
    DamageRegister,
    KafkaStorageError,
    TooManyOpenFilesError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Clock, Timer
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.executor import Executor
    from barnabas.runtime.offload import Offload
    from barnabas.runtime.rng import Rng
    from barnabas.storage.topic_partition import TopicPartition


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


class LogOpening(msgspec.Struct, frozen=True):
    """Facts about a log before it is opened."""

    topic_partition: TopicPartition
    # 16 bytes; None if unknown, then `partition.metadata` supplies it if present.
    topic_id: bytes | None = None
    # From `recovery-point-offset-checkpoint`; everything below it was synced.
    recovery_point: int = 0
    # From `log-start-offset-checkpoint`.
    log_start_offset: int = 0
    # From `replication-offset-checkpoint`; limited to [log start, log end] on opening.
    high_watermark: int = 0
    # Whether the `.kafka_cleanshutdown` marker existed, so that no recovery is needed.
    clean_shutdown: bool = False
    producer_id_expiration_ms: int = 86_400_000
    # transaction.partition.verification.enable.
    verifies_transactions: bool = False


# The broker's reaction to damage that a read finds.
_ACTION = (
    "reads return CORRUPT_MESSAGE, other records are served; another in-sync replica "
    "becomes leader if there is one; otherwise stop the broker and run `barnabas log "
    "repair` on the data directory"
)


class DiskGuard:
    """Context manager that turns an OSError into a KafkaStorageError and fails the log.

    The block must be repeatable, because a missing descriptor may end it anywhere.
    """

    __slots__ = ("_dependencies", "directory", "has_failed", "is_closed", "of_change")

    def __init__(self, directory: str, dependencies: LogDependencies) -> None:
        # Path of the log's directory; `Log.rename` replaces it.
        self.directory = directory
        self._dependencies = dependencies
        # Whether a file operation has failed, after which nothing is written. Stays true.
        self.has_failed = False
        # Whether the log was closed, or renamed for its deletion. Appends are rejected, and a
        # failure of a sync that was already running concerns no record of the log. Stays true.
        self.is_closed = False
        # The same guard for a block that cannot be repeated after it has begun.
        self.of_change = _ChangeGuard(self)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self.failure(error) from error
        if isinstance(error, DamagedLogError):
            self.report(error)

    def report(self, error: DamagedLogError) -> None:
        """Report damage."""
        kind = DamageKind.GAP if error.is_gap else DamageKind.BATCH
        self._dependencies.damage.report(kind, error.path, error.problem, _ACTION, error.position)

    def failure(self, error: OSError, is_half_done: bool = False) -> KafkaStorageError:
        """Record the failure, report the first one, and return the exception to raise.

        Args:
            is_half_done: whether files and memory may differ, regardless of the error.
        """
        if is_out_of_descriptors(error):
            self._dependencies.on_descriptor_shortage()
            if not is_half_done:
                return TooManyOpenFilesError(f"{self.directory}: {error}")
            # The disk is intact, but this log must be loaded again.
            error = OSError(errno.EIO, f"a change could not be completed: {error}", self.directory)
        if not self.has_failed:
            self.has_failed = True
            self._dependencies.on_disk_failure(self.directory, error)
        return KafkaStorageError(f"{self.directory}: {error}")


class _ChangeGuard:
    """Fails the log on every OSError."""

    __slots__ = ("_guard",)

    def __init__(self, guard: DiskGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self._guard.failure(error, is_half_done=True) from error
        if isinstance(error, DamagedLogError):
            self._guard.report(error)
