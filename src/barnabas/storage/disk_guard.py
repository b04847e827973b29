"""What happens when the disk fails under a log: told once, raised always, nothing retried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Callable


class DiskGuard:
    """A `with` block in which an OSError becomes a KafkaStorageError and fails the log."""

    __slots__ = ("_on_failure", "directory", "has_failed")

    def __init__(self, directory: str, on_failure: Callable[[str, OSError], None]) -> None:
        # Of the log; follows its renaming.
        self.directory = directory
        self._on_failure = on_failure
        # Whether a file operation has failed: nothing more is written.
        self.has_failed = False

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self.failure(error) from error

    def failure(self, error: OSError) -> KafkaStorageError:
        """Note the failure, tell of the first one, and return what is to be raised."""
        if not self.has_failed:
            self.has_failed = True
            self._on_failure(self.directory, error)
        return KafkaStorageError(f"{self.directory}: {error}")
