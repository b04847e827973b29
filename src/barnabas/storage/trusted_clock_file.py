"""The file in each data directory that keeps the trusted time for the next start."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from barnabas.storage.trusted_clock import CHECKPOINT, TrustedTime, read_trusted_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.storage.doors import LogDoors
    from barnabas.storage.log_directory import LogDirectory
    from barnabas.storage.trusted_clock import TrustedClock


class TrustedClockFile:
    """Reads it at the start, and writes it from time to time and at a stop."""

    __slots__ = ("_clock", "_doors", "_writing")

    def __init__(self, clock: TrustedClock, doors: LogDoors) -> None:
        self._clock = clock
        self._doors = doors
        # Directories whose file is being written off the loop. Two writes at once would rename
        # the same temporary file.
        self._writing: set[str] = set()

    @property
    def is_writing(self) -> bool:
        """Whether a write off the loop is under way: `write_now` has to wait for it."""
        return bool(self._writing)

    def resume(self, directories: Sequence[LogDirectory]) -> None:
        """Let the clock go on from the latest time that one of the directories knows.

        Directories that have no such file, since Kafka wrote them, have other checkpoints: the
        time of their last change says when the broker ran.
        """
        found: list[TrustedTime] = []
        for directory in directories:
            # What cannot be read here fails again when the directory is opened.
            with contextlib.suppress(OSError):
                known = self._read(directory)
                if known is not None:
                    found.append(known)
        if found:
            self._clock.resume(max(found))

    def write(
        self,
        directories: Sequence[LogDirectory],
        on_failure: Callable[[LogDirectory, OSError], None],
    ) -> None:
        """Write it to each directory, off the loop, unless the last write is still under way."""
        content = self._clock.state().encode()
        for directory in directories:
            if directory.path not in self._writing:
                self._write_later(directory, content, on_failure)

    def write_now(self, directory: LogDirectory) -> None:
        """Write it in this turn. Raises OSError."""
        content = self._clock.state().encode()
        self._doors.disk.write_atomically(f"{directory.path}/{CHECKPOINT}", content)

    def _write_later(
        self,
        directory: LogDirectory,
        content: bytes,
        on_failure: Callable[[LogDirectory, OSError], None],
    ) -> None:
        path, disk = f"{directory.path}/{CHECKPOINT}", self._doors.disk

        def done(_: None, error: BaseException | None) -> None:
            self._writing.discard(directory.path)
            if isinstance(error, OSError):
                on_failure(directory, error)

        self._writing.add(directory.path)
        self._doors.executor.submit(lambda: disk.write_atomically(path, content, sync=False), done)

    def _read(self, directory: LogDirectory) -> TrustedTime | None:
        disk = self._doors.disk
        known = read_trusted_time(disk, f"{directory.path}/{CHECKPOINT}")
        if known is not None:
            return known
        times = [disk.modified_ms(each.path) for each in directory.checkpoints
                 if disk.exists(each.path)]  # fmt: skip
        return TrustedTime(max(times), -1) if times else None
