"""Files opened for reading only: this module cannot modify a log or create a file."""

from __future__ import annotations

import os
from typing import Self

from barnabas.runtime import system_calls

__all__ = ["ReadOnlyFile", "is_locked"]


class ReadOnlyFile:
    """A file with its size at opening time; data that a broker appends later is not visible."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def read_at(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        return os.pread(self._descriptor, min(size, max(0, self.size - position)), position)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_locked(path: str) -> bool:
    """Return whether a broker holds the lock file, without locking or creating it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return system_calls.is_locked(descriptor)
    finally:
        os.close(descriptor)
