"""The interface for long computations over files, which must block neither the loop nor the GIL.

A task is a generator over a disk. It yields the number of bytes that it has read and written since
the last number, so that its runner can slice and throttle it. It also yields its messages. The real
implementation runs it in a child process (`child_offload`), because a busy thread would delay the
loop by milliseconds. `SlicedOffload` runs it on the loop, one slice per turn, in simulations and
tests.
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
# Shorter pauses are added to the next pause.
_PAUSE_MS_MIN = 1.0


class OffloadError(RuntimeError):
    """The task failed for an external reason: its process died or could not be started."""


class OffloadTask(msgspec.Struct, frozen=True):
    """A module-level function and its argument. Both, and all messages, can be pickled."""

    work: Work
    argument: object
    # Average rate limit of reads and writes together.
    bytes_per_second: float = NO_LIMIT


class Offload(Protocol):
    """Runs tasks outside the current call, and delivers their messages on the loop."""

    def submit(
        self,
        task: OffloadTask,
        on_message: Callable[[object], None],
        on_done: Callable[[BaseException | None], None],
    ) -> Cancellable:
        """Run `task`; tasks beyond the capacity wait.

        Args:
            task: the task to run.
            on_message: receives every value that the task yields, except numbers of bytes, in
                order.
            on_done: receives None at the end, or the error that ended the task. Neither callback
                runs before this returns, nor after the result was cancelled.
        """
        ...

    def close(self) -> None:
        """Cancel the running tasks, and release all resources."""
        ...


class Throttle:
    """Computes pauses that keep the number of bytes below a rate."""

    __slots__ = ("_bytes", "_bytes_per_second", "_clock", "_start_ms")

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._bytes = 0
        self._start_ms = clock.monotonic_ms()

    def pause_ms(self, count: int) -> float:
        """Return how long to pause after `count` more bytes, ms."""
        if self._bytes_per_second == NO_LIMIT:
            return 0.0
        self._bytes += count
        due_ms = self._bytes / self._bytes_per_second * _MS_PER_S
        pause_ms = due_ms - (self._clock.monotonic_ms() - self._start_ms)
        return pause_ms if pause_ms >= _PAUSE_MS_MIN else 0.0


class SlicedOffload:
    """Runs all tasks on the loop, in alternating slices."""

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
        """Run `task`, one slice per turn."""
        slices = _Slices(self, task, on_message, on_done)
        self._running.add(slices)
        self._timer.call_soon(slices.run)
        return slices

    def close(self) -> None:
        """Cancel the running tasks."""
        for slices in list(self._running):
            slices.cancel()

    def begin(self, task: OffloadTask) -> tuple[Iterator[object], Throttle]:
        """Start the task; returns its generator and its throttle."""
        return task.work(self._disk, task.argument), Throttle(self._clock, task.bytes_per_second)

    def after(self, delay_ms: float, run: Callable[[], None]) -> None:
        """Call `run` in the next turn, or after the delay if it is positive."""
        if delay_ms > 0:
            self._timer.call_later(delay_ms, run)
        else:
            self._timer.call_soon(run)

    def forget(self, slices: _Slices) -> None:
        """Remove a finished or cancelled task."""
        self._running.discard(slices)


class _Slices:
    """One task on the loop."""

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
        """Run one slice."""
        if self._is_over:
            return
        try:
            message = next(self._steps)
        except StopIteration:
            self._end(None)
        except Exception as error:  # noqa: BLE001 - passed to on_done
            self._end(error)
        else:
            count = message if isinstance(message, int) else 0
            # Scheduled before the message is delivered, because the receiver may cancel the task.
            self._offload.after(self._throttle.pause_ms(count), self.run)
            if not isinstance(message, int):
                self._on_message(message)

    def cancel(self) -> None:
        """Cancel the task; no callback runs afterwards."""
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
