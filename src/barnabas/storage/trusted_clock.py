"""The time by which records, producers and offsets expire: the wall clock, unless it has jumped.

A wall clock that is set forward by days, if only for minutes, would delete everything whose
retention is shorter. So a jump forward counts only after the broker has run with it for
`barnabas.retention.hold.ms`; until then this clock goes on from the time before, by the monotonic
clock. The time in which the broker was off is a jump too: what had expired in it is deleted after
the same delay. A clock that goes back is believed at once: it deletes nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.checkpoint import CheckpointError, decode_lines, encode_lines
from barnabas.storage.config import HOLD_KEY

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk

_log = logging.getLogger(__name__)

CHECKPOINT = "retention-clock-checkpoint"
# Clocks are corrected by less than this, and processes stand still for less.
JUMP_MS = 10 * 60_000
# A broker that was off for less than this deletes at once what has expired.
OFF_MS_MAX = 24 * 3_600_000
_MS_PER_HOUR = 3_600_000.0


class TrustedTime(NamedTuple):
    """What is kept for the next start."""

    trusted_ms: int
    # How long the jump has been held back that is held back now; -1: none is.
    held_ms: int

    def encode(self) -> bytes:
        """The content of the checkpoint."""
        return encode_lines([f"{self.trusted_ms} {self.held_ms}"])


def read_trusted_time(disk: Disk, path: str) -> TrustedTime | None:
    """What a checkpoint says; None if it is absent or damaged.

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
    """A clock whose wall time follows a jump forward only after some time."""

    __slots__ = ("_at_ms", "_clock", "_held_ms", "_target_ms", "_trusted_ms", "hold_ms")

    def __init__(self, clock: Clock, hold_ms: int) -> None:
        self._clock = clock
        # How long a jump is held back; 0: never.
        self.hold_ms = hold_ms
        # The trusted wall time, and the monotonic time at which it was taken. Invariant: no wall
        # time that this clock has given was ahead of the real clock's by then.
        self._trusted_ms = float(clock.wall_ms())
        self._at_ms = clock.monotonic_ms()
        # How long the present jump has been held back; None: there is none.
        self._held_ms: float | None = None
        # How far the wall clock was ahead when that began.
        self._target_ms = 0.0

    @property
    def held_back_ms(self) -> int:
        """How far the wall clock is ahead of this one, 0 if it is believed."""
        if self._held_ms is None:
            return 0
        return max(0, self._clock.wall_ms() - self.wall_ms())

    def monotonic_ms(self) -> float:
        """Milliseconds of the monotonic clock."""
        return self._clock.monotonic_ms()

    def wall_ms(self) -> int:
        """The time by which something may expire, milliseconds since 1970-01-01 UTC."""
        wall_ms, now_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
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
        """Go on from what an earlier process knew: the time since then is a jump if it is long."""
        off_ms = self._clock.wall_ms() - last.trusted_ms
        if last.held_ms < 0 and off_ms <= OFF_MS_MAX:
            return
        if off_ms <= JUMP_MS:
            return
        self._trusted_ms, self._at_ms = float(last.trusted_ms), self._clock.monotonic_ms()
        self._begin_hold(off_ms, max(0, last.held_ms))

    def state(self) -> TrustedTime:
        """What the next process has to know."""
        trusted_ms = self.wall_ms()
        return TrustedTime(trusted_ms, -1 if self._held_ms is None else int(self._held_ms))

    def _is_held(self, ahead_ms: float, passed_ms: float) -> bool:
        """Whether a wall clock that is so far ahead is still not believed."""
        if self._held_ms is None or ahead_ms > self._target_ms + JUMP_MS:
            # A further jump begins a hold of its own.
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
            "The wall clock has jumped ahead, or this broker was off: nothing is deleted for its "
            "age beyond the time before. ahead_hours=%.1f hold_hours=%.1f. If the clock is wrong, "
            "correct it now; if it is right, nothing is to be done, or set %s=0 to delete at once",
            ahead_ms / _MS_PER_HOUR,
            (self.hold_ms - held_ms) / _MS_PER_HOUR,
            HOLD_KEY,
        )

    def _end_hold(self, ahead_ms: float) -> None:
        self._held_ms = None
        if ahead_ms > JUMP_MS:
            _log.warning(
                "The wall clock is believed now, records are deleted by it: ahead_hours=%.1f",
                ahead_ms / _MS_PER_HOUR,
            )
        else:
            _log.info("The wall clock is right again; nothing was deleted by it meanwhile")
