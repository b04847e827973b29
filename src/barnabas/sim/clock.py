"""Virtual time: the events of all simulated hosts, and the clock, timers and executor of a host."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeVar

from barnabas.runtime.executor import run_in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.clock import Cancellable, Timer
    from barnabas.runtime.rng import Rng


class SimEvent:
    """A scheduled callback, which can be canceled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        # None after the callback has run or was canceled.
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the callback."""
        self.callback = None


class SimScheduler:
    """The event queue. Only this class advances virtual time: to the next event or to a limit."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        # (due time in ms, sequence number, event): events with the same due time run in the order
        # of their scheduling.
        self._queue: list[tuple[float, int, SimEvent]] = []
        self._sequence = 0
        # Number of events that have run. It is the same for two runs with one seed.
        self.events_run = 0

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> SimEvent:
        """Run the callback after `delay_ms`, never during this call."""
        event = SimEvent(callback)
        self._sequence += 1
        due_ms = self.now_ms + max(0.0, delay_ms)
        heapq.heappush(self._queue, (due_ms, self._sequence, event))
        return event

    def run_for(self, duration_ms: float) -> None:
        """Run all events of the next `duration_ms`."""
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self._step()
        self.now_ms = end_ms

    def run_until(self, predicate: Callable[[], bool], limit_ms: float) -> bool:
        """Run events until `predicate()` holds. Return False when the limit passes first."""
        end_ms = self.now_ms + limit_ms
        while not predicate():
            if not self._queue or self._queue[0][0] > end_ms:
                self.now_ms = end_ms
                return predicate()
            self._step()
        return True

    def _step(self) -> None:
        self.now_ms, _, event = heapq.heappop(self._queue)
        callback = event.callback
        if callback is not None:
            event.callback = None
            self.events_run += 1
            callback()


# Virtual time starts at 2026-01-01 00:00:00 UTC.
WALL_START_MS = 1_767_225_600_000


class SimClock:
    """A clock in virtual time, whose wall time can have an offset for each host."""

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

    def __init__(self, scheduler: SimScheduler) -> None:
        self.scheduler = scheduler
        # Whether the process is dead.
        self.is_stopped = False
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
        self.is_stopped = True

    def pause(self, duration_ms: float) -> None:
        """Pause the process (SIGSTOP). Afterwards, its overdue callbacks run in their order."""
        self._paused_until = self.scheduler.now_ms + duration_ms

    @property
    def pause_left_ms(self) -> float:
        """Time until the end of the pause, in ms; negative or 0 without a pause."""
        return self._paused_until - self.scheduler.now_ms


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


T = TypeVar("T")


class SimExecutor:
    """An executor with random delays, so results can arrive out of order as with threads."""

    def __init__(self, timer: Timer, rng: Rng, delay_max_ms: float = 5.0) -> None:
        self._timer = timer
        self._rng = rng
        # Upper bound of each delay (ms). Tests may change it at any time.
        self.delay_max_ms = delay_max_ms

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `work` after a random delay, and `on_done` after a second random delay."""

        def run() -> None:
            result: T | None = None
            failure: BaseException | None = None
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the error is passed to on_done
                failure = error
            self._timer.call_later(self._delay(), lambda: on_done(result, failure))

        self._timer.call_later(self._delay(), run)

    def run_all(self, works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """Run all of `works` at the current virtual time, before this method returns."""
        return run_in_order(works)

    def _delay(self) -> float:
        return self._rng.random() * self.delay_max_ms
