"""Clock and timer of a simulated host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.timer import Cancellable
    from barnabas.sim.scheduler import SimScheduler

# Virtual time begins here: 2026-01-01 00:00:00 UTC.
WALL_START_MS = 1_767_225_600_000


class SimClock:
    """Virtual time; each host's wall clock may be off by its own amount."""

    __slots__ = ("_scheduler", "wall_offset_ms")

    def __init__(self, scheduler: SimScheduler, wall_offset_ms: int = 0) -> None:
        self._scheduler = scheduler
        self.wall_offset_ms = wall_offset_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as this host believes."""
        return WALL_START_MS + self.wall_offset_ms + int(self._scheduler.now_ms)

    def monotonic_ms(self) -> float:
        """Milliseconds since the world began."""
        return self._scheduler.now_ms


class SimTimer:
    """Timers that die with their host."""

    __slots__ = ("_paused_until", "_scheduler", "_stopped")

    def __init__(self, scheduler: SimScheduler) -> None:
        self._scheduler = scheduler
        self._stopped = False
        # Virtual time before which nothing runs.
        self._paused_until = 0.0

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Call back after `delay_ms` of virtual time."""
        return self._scheduler.schedule(delay_ms, lambda: self._run(callback))

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back at this moment, after what is due already."""
        self._scheduler.schedule(0.0, lambda: self._run(callback))

    def stop(self) -> None:
        """The process is dead: nothing of it runs any more."""
        self._stopped = True

    def pause(self, duration_ms: float) -> None:
        """The process stands still (SIGSTOP), and then does all that was due, in its order."""
        self._paused_until = self._scheduler.now_ms + duration_ms

    def _run(self, callback: Callable[[], None]) -> None:
        if self._stopped:
            return
        left_ms = self._paused_until - self._scheduler.now_ms
        if left_ms > 0:
            self._scheduler.schedule(left_ms, lambda: self._run(callback))
        else:
            callback()
