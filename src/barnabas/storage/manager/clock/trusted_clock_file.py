"""File in each data directory that stores the trusted time for the next start."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from barnabas.storage.manager.clock.trusted_clock import CHECKPOINT, TrustedTime, read_trusted_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log_dependencies import LogDependencies
    from barnabas.storage.manager.clock.trusted_clock import TrustedClock


class TrustedClockFile:
    """Reads the file at startup; writes it periodically and at shutdown."""

    __slots__ = ("_clock", "_dependencies", "_writing")

    def __init__(self, clock: TrustedClock, dependencies: LogDependencies) -> None:
        self._clock = clock
        self._dependencies = dependencies
        # Directories whose file is being written off the loop. Two concurrent writes would rename
        # the same temporary file.
        self._writing: set[str] = set()

    @property
    def is_writing(self) -> bool:
        """Whether a write off the loop is running; `write_now` must wait for it."""
        return bool(self._writing)

    def resume(self, directories: Sequence[LogDirectory]) -> None:
        """Resume the clock from the latest time stored in a directory.

        Directories written by Kafka have no such file. Then the modification time of their
        checkpoints shows when the broker last ran.
        """
        found: list[TrustedTime] = []
        for directory in directories:
            # If this read fails, opening the directory fails as well and reports it.
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
        """Write the file of each directory off the loop, except where a write is running."""
        content = self._clock.state().encode()
        for directory in directories:
            if directory.path not in self._writing:
                self._write_later(directory, content, on_failure)

    def write_now(self, directory: LogDirectory) -> None:
        """Write the file synchronously.

        Raises:
            OSError: the write failed.
        """
        content = self._clock.state().encode()
        self._dependencies.disk.write_atomically(f"{directory.path}/{CHECKPOINT}", content)

    def _write_later(
        self,
        directory: LogDirectory,
        content: bytes,
        on_failure: Callable[[LogDirectory, OSError], None],
    ) -> None:
        path, disk = f"{directory.path}/{CHECKPOINT}", self._dependencies.disk

        def done(_: None, error: BaseException | None) -> None:
            self._writing.discard(directory.path)
            if isinstance(error, OSError):
                on_failure(directory, error)

        self._writing.add(directory.path)
        self._dependencies.executor.submit(
            lambda: disk.write_atomically(path, content, sync=False), done
        )

    def _read(self, directory: LogDirectory) -> TrustedTime | None:
        disk = self._dependencies.disk
        known = read_trusted_time(disk, f"{directory.path}/{CHECKPOINT}")
        if known is not None:
            return known
        times = [disk.modified_ms(each.path) for each in directory.checkpoints
                 if disk.exists(each.path)]  # fmt: skip
        return TrustedTime(max(times), -1) if times else None
