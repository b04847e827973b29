"""Clock and timer of a simulated host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Cancellable
    from barnabas.sim.scheduler import SimScheduler

# Virtual time starts at 2026-01-01 00:00:00 UTC.
WALL_START_MS = 1_767_225_600_000


class SimClock:
    """A clock in virtual time, whose wall time can have an offset for each host."""

    __slots__ = ("_scheduler", "wall_offset_ms")

    def __init__(self, scheduler: SimScheduler, wall_offset_ms: int = 0) -> None:
        self._scheduler = scheduler
        self.wall_offset_ms = wall_offset_ms

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970-01-01 UTC by this host's wall clock."""
        return WALL_START_MS + self.wall_offset_ms + int(self._scheduler.now_ms)

    def monotonic_ms(self) -> float:
        """Return the milliseconds since the simulated world started."""
        return self._scheduler.now_ms


class SimTimer:
    """Timers of one simulated process: they stop when the process dies."""

    __slots__ = ("_paused_until", "_scheduler", "_stopped")

    def __init__(self, scheduler: SimScheduler) -> None:
        self._scheduler = scheduler
        self._stopped = False
        # Callbacks do not run before this virtual time (ms).
        self._paused_until = 0.0

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Run the callback after `delay_ms` of virtual time."""
        return _SimCallback(self, callback, delay_ms)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run the callback at the current virtual time, after the callbacks already due."""
        _SimCallback(self, callback, 0.0)

    def stop(self) -> None:
        """Stop the process: its callbacks no longer run."""
        self._stopped = True

    def pause(self, duration_ms: float) -> None:
        """Pause the process (SIGSTOP). Afterwards, its overdue callbacks run in their order."""
        self._paused_until = self._scheduler.now_ms + duration_ms

    @property
    def scheduler(self) -> SimScheduler:
        """The event queue."""
        return self._scheduler

    @property
    def is_stopped(self) -> bool:
        """Whether the process is dead."""
        return self._stopped

    @property
    def pause_left_ms(self) -> float:
        """How long the process is still paused, in ms; negative or 0 if it is not."""
        return self._paused_until - self._scheduler.now_ms


class _SimCallback:
    """A callback of a process. It can be canceled until it runs, during a pause too."""

    __slots__ = ("_callback", "_event", "_timer")

    def __init__(self, timer: SimTimer, callback: Callable[[], None], delay_ms: float) -> None:
        self._timer = timer
        self._callback = callback
        self._event = timer.scheduler.schedule(delay_ms, self._run)

    def cancel(self) -> None:
        """Cancel the callback."""
        self._event.cancel()

    def _run(self) -> None:
        timer = self._timer
        if timer.is_stopped:
            return
        left_ms = timer.pause_left_ms
        if left_ms > 0:
            self._event = timer.scheduler.schedule(left_ms, self._run)
        else:
            self._callback()
