"""Clock for the expiry of records, producers and offsets: the wall clock without recent jumps.

A wall clock set forward by days, even for minutes, would delete all records with a shorter
retention. So a jump forward takes effect only after the broker has run with it for
`barnabas.retention.hold.ms`. Until then, this clock continues from the time before the jump, driven
by the monotonic clock. Downtime of the broker also counts as a jump, so records that expired
meanwhile are deleted after the same delay. A jump backwards takes effect at once, because it
deletes nothing.

A file in each data directory stores the trusted time for the next start.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.config import HOLD_KEY
from barnabas.storage.files.checkpoint import CheckpointError, decode_lines, encode_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log_dependencies import LogDependencies


_log = logging.getLogger(__name__)

CHECKPOINT = "retention-clock-checkpoint"
# Smaller differences are normal clock corrections or pauses of the process.
JUMP_MS = 10 * 60_000
# After a shorter downtime, expired records are deleted at once.
OFF_MS_MAX = 24 * 3_600_000
_MS_PER_HOUR = 3_600_000.0


class TrustedTime(NamedTuple):
    """State of the clock that is stored for the next start."""

    trusted_ms: int
    # How long the current jump has been held back, in ms; -1 without a jump.
    held_ms: int

    def encode(self) -> bytes:
        """Return the content of the checkpoint."""
        return encode_lines([f"{self.trusted_ms} {self.held_ms}"])


def read_trusted_time(disk: Disk, path: str) -> TrustedTime | None:
    """Return the content of a checkpoint; None if it is absent or damaged.

    Raises:
        OSError: the disk failed.
    """
    if not disk.exists(path):
        return None
    try:
        ((trusted_ms, held_ms),) = decode_lines(disk.read(path), 2)
        return TrustedTime(int(trusted_ms), int(held_ms))
    except (CheckpointError, ValueError):
        return None


class TrustedClock:
    """A clock whose wall time follows a jump forward only after a delay."""

    __slots__ = (
        "_at_ms",
        "_clock",
        "_held_ms",
        "_target_ms",
        "_trusted_ms",
        "hold_ms",
        "monotonic_ms",
    )

    def __init__(self, clock: Clock, hold_ms: int) -> None:
        self._clock = clock
        # Returns the time of the monotonic clock in ms.
        self.monotonic_ms = clock.monotonic_ms
        # How long a jump is held back, in ms; 0 disables the delay.
        self.hold_ms = hold_ms
        # Trusted wall time, and the monotonic time of its last update. Invariant: this clock never
        # returns a wall time ahead of the real wall clock.
        self._trusted_ms = float(clock.wall_ms())
        self._at_ms = clock.monotonic_ms()
        # How long the current jump has been held back, in ms; None without a jump.
        self._held_ms: float | None = None
        # Lead of the wall clock at the start of the jump, in ms.
        self._target_ms = 0.0

    @property
    def held_back_ms(self) -> int:
        """Lead of the wall clock over this clock in ms; 0 if there is no jump."""
        if self._held_ms is None:
            return 0
        return max(0, self._clock.wall_ms() - self.wall_ms())

    def wall_ms(self) -> int:
        """Return the wall time for expiry, in ms since 1970-01-01 UTC."""
        wall_ms = self._clock.wall_ms()
        if self._held_ms is None and 0 <= wall_ms - self._trusted_ms <= JUMP_MS:
            # Whatever time has passed since the last update, the wall clock has not jumped.
            return wall_ms
        now_ms = self._clock.monotonic_ms()
        passed_ms = now_ms - self._at_ms
        self._at_ms = now_ms
        self._trusted_ms += passed_ms
        ahead_ms = wall_ms - self._trusted_ms
        if ahead_ms > JUMP_MS and self._is_held(ahead_ms, passed_ms):
            return int(self._trusted_ms)
        if self._held_ms is not None:
            self._end_hold(ahead_ms)
        self._trusted_ms = float(wall_ms)
        return wall_ms

    def resume(self, last: TrustedTime) -> None:
        """Continue from the state of an earlier process; a long downtime counts as a jump."""
        off_ms = self._clock.wall_ms() - last.trusted_ms
        if last.held_ms < 0 and off_ms <= OFF_MS_MAX:
            return
        if off_ms <= JUMP_MS:
            return
        self._trusted_ms, self._at_ms = float(last.trusted_ms), self._clock.monotonic_ms()
        self._begin_hold(off_ms, max(0, last.held_ms))

    def state(self) -> TrustedTime:
        """Return the state for the next process."""
        trusted_ms = self.wall_ms()
        return TrustedTime(trusted_ms, -1 if self._held_ms is None else int(self._held_ms))

    def _is_held(self, ahead_ms: float, passed_ms: float) -> bool:
        """Return whether a lead of `ahead_ms` is still held back; update the hold."""
        if self._held_ms is None or ahead_ms > self._target_ms + JUMP_MS:
            # A further jump starts a new hold.
            self._begin_hold(ahead_ms, 0)
        else:
            self._held_ms += passed_ms
        assert self._held_ms is not None
        return self._held_ms < self.hold_ms

    def _begin_hold(self, ahead_ms: float, held_ms: int) -> None:
        self._held_ms, self._target_ms = float(held_ms), ahead_ms
        if held_ms >= self.hold_ms:
            return
        _log.warning(
            "The wall clock jumped ahead, or the broker was down; expiry is delayed: "
            "ahead_hours=%.1f hold_hours=%.1f. If the clock is wrong, correct it now. If "
            "it is right, do nothing, or set %s=0 to delete expired records at once",
            ahead_ms / _MS_PER_HOUR,
            (self.hold_ms - held_ms) / _MS_PER_HOUR,
            HOLD_KEY,
        )

    def _end_hold(self, ahead_ms: float) -> None:
        self._held_ms = None
        if ahead_ms > JUMP_MS:
            _log.warning(
                "Expiry follows the wall clock again: ahead_hours=%.1f",
                ahead_ms / _MS_PER_HOUR,
            )
        else:
            _log.info("The wall clock was corrected; no record expired by the wrong time")


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
        paths = [each.path for each in directory.checkpoints]
        times = [disk.modified_ms(each) for each in paths if disk.exists(each)]
        return TrustedTime(max(times), -1) if times else None
