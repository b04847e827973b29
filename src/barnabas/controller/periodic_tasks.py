"""Periodic tasks of the active controller (Kafka's PeriodicTaskControlManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.timer import Cancellable, Timer

# Delay between the parts of a task, ms, in which the event loop serves other work.
_NEXT_PART_MS = 10.0


class PeriodicTask(msgspec.Struct, frozen=True):
    """A task that runs every `period_ms`."""

    period_ms: float
    # Does a part of the work; returns whether more is left.
    run: Callable[[], bool]


class PeriodicTasks:
    """Runs the tasks while this controller is active."""

    __slots__ = ("_armed", "_is_running", "_tasks", "_timer")

    def __init__(self, timer: Timer, tasks: list[PeriodicTask]) -> None:
        self._timer = timer
        self._tasks = tasks
        self._armed: dict[int, Cancellable] = {}
        self._is_running = False

    def start(self) -> None:
        """Start all tasks. Each runs for the first time after its period."""
        self._is_running = True
        for number, task in enumerate(self._tasks):
            self._arm(number, task.period_ms)

    def stop(self) -> None:
        """Stop all tasks until the next `start`."""
        self._is_running = False
        for armed in self._armed.values():
            armed.cancel()
        self._armed.clear()

    def _arm(self, number: int, delay_ms: float) -> None:
        self._armed[number] = self._timer.call_later(delay_ms, lambda: self._run(number))

    def _run(self, number: int) -> None:
        task = self._tasks[number]
        del self._armed[number]
        more = False
        try:
            more = task.run()
        finally:
            # A task that raises runs again after its period. The task may have ended this
            # controller's leadership, and thereby called `stop`.
            if self._is_running and number not in self._armed:
                self._arm(number, _NEXT_PART_MS if more else task.period_ms)
