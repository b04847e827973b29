"""The door for long computations over files: they must not hold the loop, nor its interpreter lock.

A piece of work is a generator over a disk. It yields how many bytes it has read and written since
it yielded last, so that whoever runs it can slice and throttle it, and between those whatever it
has to tell. The real door runs it in a child process (`child_offload`), because a busy thread would
move the loop's p99 from microseconds to milliseconds; `SlicedOffload` runs it on the loop, a slice
per turn, in the simulated world and in tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.timer import Cancellable, Timer

Work: TypeAlias = "Callable[[Disk, Any], Iterator[object]]"

_MS_PER_S = 1000.0
NO_LIMIT = float("inf")
# A shorter pause is put off to the next one.
_PAUSE_MS_MIN = 1.0


class OffloadError(RuntimeError):
    """The work was not done for a reason that is not its own: its process died or never began."""


class OffloadTask(msgspec.Struct, frozen=True):
    """A function of a module with its argument; both, and all it tells, can be pickled."""

    work: Work
    argument: object
    # Read and written together, on average.
    bytes_per_second: float = NO_LIMIT


class Offload(Protocol):
    """Runs work elsewhere and answers on the loop."""

    def submit(
        self,
        task: OffloadTask,
        on_message: Callable[[object], None],
        on_done: Callable[[BaseException | None], None],
    ) -> Cancellable:
        """Run `task`; pieces of work beyond the door's width wait for their turn.

        Args:
            on_message: gets all that the work yields but for numbers of bytes, in order.
            on_done: gets None at the end, or the error that ended it. Neither is called before
                this returns, nor after the result was cancelled.
        """
        ...

    def close(self) -> None:
        """Call off what is under way and give everything back."""
        ...


class Throttle:
    """Says how long to pause so that the bytes so far keep to a rate."""

    __slots__ = ("_bytes", "_bytes_per_second", "_clock", "_start_ms")

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._bytes = 0
        self._start_ms = clock.monotonic_ms()

    def pause_ms(self, count: int) -> float:
        """How long to pause after `count` further bytes."""
        if self._bytes_per_second == NO_LIMIT:
            return 0.0
        self._bytes += count
        due_ms = self._bytes / self._bytes_per_second * _MS_PER_S
        pause_ms = due_ms - (self._clock.monotonic_ms() - self._start_ms)
        return pause_ms if pause_ms >= _PAUSE_MS_MIN else 0.0


class SlicedOffload:
    """All pieces of work take turns on the loop, a slice each."""

    __slots__ = ("_clock", "_disk", "_running", "_timer")

    def __init__(self, disk: Disk, clock: Clock, timer: Timer) -> None:
        self._disk = disk
        self._clock = clock
        self._timer = timer
        self._running: set[_Slices] = set()

    def submit(
        self,
        task: OffloadTask,
        on_message: Callable[[object], None],
        on_done: Callable[[BaseException | None], None],
    ) -> Cancellable:
        """Run `task` a slice per turn."""
        slices = _Slices(self, task, on_message, on_done)
        self._running.add(slices)
        self._timer.call_soon(slices.run)
        return slices

    def close(self) -> None:
        """Call off what is under way."""
        for slices in list(self._running):
            slices.cancel()

    def begin(self, task: OffloadTask) -> tuple[Iterator[object], Throttle]:
        """The work itself, and what paces it."""
        return task.work(self._disk, task.argument), Throttle(self._clock, task.bytes_per_second)

    def after(self, delay_ms: float, run: Callable[[], None]) -> None:
        """Run in the next turn, or when the delay is over."""
        if delay_ms > 0:
            self._timer.call_later(delay_ms, run)
        else:
            self._timer.call_soon(run)

    def forget(self, slices: _Slices) -> None:
        """It is over."""
        self._running.discard(slices)


class _Slices:
    """One piece of work on the loop."""

    __slots__ = ("_is_over", "_offload", "_on_done", "_on_message", "_steps", "_throttle")

    def __init__(
        self,
        offload: SlicedOffload,
        task: OffloadTask,
        on_message: Callable[[object], None],
        on_done: Callable[[BaseException | None], None],
    ) -> None:
        self._offload = offload
        self._steps, self._throttle = offload.begin(task)
        self._on_message = on_message
        self._on_done = on_done
        self._is_over = False

    def run(self) -> None:
        """One slice."""
        if self._is_over:
            return
        try:
            told = next(self._steps)
        except StopIteration:
            self._end(None)
        except Exception as error:  # noqa: BLE001 - handed over to on_done, nothing is lost
            self._end(error)
        else:
            count = told if isinstance(told, int) else 0
            # Before the message: it may call the work off.
            self._offload.after(self._throttle.pause_ms(count), self.run)
            if not isinstance(told, int):
                self._on_message(told)

    def cancel(self) -> None:
        """Nothing is told any more."""
        if not self._is_over:
            self._is_over = True
            self._steps_close()
            self._offload.forget(self)

    def _end(self, error: BaseException | None) -> None:
        self._is_over = True
        self._offload.forget(self)
        self._on_done(error)

    def _steps_close(self) -> None:
        close = getattr(self._steps, "close", None)
        if close is not None:
            close()
