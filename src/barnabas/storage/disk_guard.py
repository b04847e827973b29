"""What happens when the disk fails under a log, or its files are found damaged.

A failure is told once and raised always; nothing is retried. Damage is told once per place.

A missing descriptor is no failure of the disk. An operation that has changed nothing yet, or that
can be repeated, is refused then, and the log stays in use.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.damage import DamageKind
from barnabas.storage.errors import DamagedLogError, KafkaStorageError, TooManyOpenFilesError

if TYPE_CHECKING:
    from barnabas.storage.doors import LogDoors

# What a broker does about damage that a read has met.
_ACTION = (
    "answered with CORRUPT_MESSAGE, other records are served; another replica in sync leads if "
    "there is one; else stop the broker and run `barnabas log repair` on the data directory"
)


class DiskGuard:
    """A `with` block in which an OSError becomes a KafkaStorageError and fails the log.

    The block must be repeatable: a missing descriptor may end it at any place.
    """

    __slots__ = ("_doors", "directory", "has_failed", "of_change")

    def __init__(self, directory: str, doors: LogDoors) -> None:
        # Of the log; follows its renaming.
        self.directory = directory
        self._doors = doors
        # Whether a file operation has failed: nothing more is written.
        self.has_failed = False
        # The same for a block that cannot be repeated once it has begun.
        self.of_change = _ChangeGuard(self)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self.failure(error) from error
        if isinstance(error, DamagedLogError):
            self.tell(error)

    def tell(self, error: DamagedLogError) -> None:
        """Tell of damage that was met."""
        kind = DamageKind.GAP if error.is_gap else DamageKind.BATCH
        self._doors.damage.tell(kind, error.path, error.problem, _ACTION, error.position)

    def failure(self, error: OSError, is_half_done: bool = False) -> KafkaStorageError:
        """Note the failure, tell of the first one, and return what is to be raised.

        Args:
            is_half_done: files and memory do not agree any more, whatever the error is.
        """
        if is_out_of_descriptors(error):
            self._doors.on_descriptor_shortage()
            if not is_half_done:
                return TooManyOpenFilesError(f"{self.directory}: {error}")
            # The disk is in order, but this log is not: it has to be read anew.
            error = OSError(errno.EIO, f"a change was cut short: {error}", self.directory)
        if not self.has_failed:
            self.has_failed = True
            self._doors.on_disk_failure(self.directory, error)
        return KafkaStorageError(f"{self.directory}: {error}")


class _ChangeGuard:
    """Fails the log for every OSError."""

    __slots__ = ("_guard",)

    def __init__(self, guard: DiskGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self._guard.failure(error, is_half_done=True) from error
        if isinstance(error, DamagedLogError):
            self._guard.tell(error)
