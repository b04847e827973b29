"""Backlog of a broker: metadata changes that are applied in order, in slices of turns.

A change with 10,000 new partitions creates 40,000 files. The first slice of a change runs in the
turn that commits it, and is enough for most changes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.waiting.steps import UNFINISHED, run_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.runtime.clock import Clock, Timer

# Limit of a slice. Each turn runs one, and its last step may exceed the limit.
SLICE_MS = 10.0


class Backlog:
    """Runs generators to their end, one after the other."""

    __slots__ = ("_clock", "_is_closed", "_on_empty", "_on_failed", "_timer", "_work")

    def __init__(
        self, clock: Clock, timer: Timer, on_failed: Callable[[BaseException], None]
    ) -> None:
        """Store the dependencies. `on_failed` gets the error of a step in a later turn."""
        self._clock = clock
        self._timer = timer
        self._on_failed = on_failed
        # Pending generators. The first one is in progress.
        self._work: deque[Generator[None, None, None]] = deque()
        # Callbacks for the moment when no work is left. Each is called once.
        self._on_empty: list[Callable[[], None]] = []
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._work)

    def add(self, steps: Generator[None, None, None]) -> None:
        """Run the steps after all earlier work. Without such work, the first slice runs now."""
        self._work.append(steps)
        if len(self._work) == 1:
            self._run_slice()
            self._continue()

    def when_empty(self, callback: Callable[[], None]) -> None:
        """Call `callback` when no work is left, immediately if there is none now."""
        if self._work:
            self._on_empty.append(callback)
        else:
            callback()

    def close(self) -> None:
        """Run no further steps."""
        self._is_closed = True

    def _turn(self) -> None:
        if self._is_closed:
            return
        try:
            self._run_slice()
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - do not continue after a half-applied change
            self._is_closed = True
            self._on_failed(error)
            return
        self._continue()

    def _run_slice(self) -> None:
        """Run steps until the slice ends or no work is left."""
        monotonic_ms = self._clock.monotonic_ms
        ends_ms = monotonic_ms() + SLICE_MS
        while self._work:
            left_ms = ends_ms - monotonic_ms()
            if run_slice(self._work[0], self._clock, left_ms) is UNFINISHED:
                return
            self._work.popleft()

    def _continue(self) -> None:
        if self._work:
            self._timer.call_soon(self._turn)
            return
        waiting, self._on_empty = self._on_empty, []
        for callback in waiting:
            callback()
