"""Handling of disk failures and damaged files of a log.

Every failure is raised and only the first is reported; nothing is retried. Damage is reported once
per place.

A missing descriptor is not a disk failure. If the operation has changed nothing, or can be
repeated, it is rejected and the log stays in use.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.damage import DamageKind
from barnabas.storage.errors import DamagedLogError, KafkaStorageError, TooManyOpenFilesError

if TYPE_CHECKING:
    from barnabas.storage.log_dependencies import LogDependencies

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
