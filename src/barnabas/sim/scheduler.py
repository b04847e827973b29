"""Virtual time: one queue of events for all hosts of a simulated world, run in one fixed order."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SimEvent:
    """Something that will happen unless cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        # None once it happened or was cancelled.
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """It will not happen."""
        self.callback = None


class SimScheduler:
    """The only thing that moves virtual time: forward, to the next event."""

    __slots__ = ("_queue", "_sequence", "events_run", "now_ms")

    def __init__(self) -> None:
        self.now_ms = 0.0
        # (due, order of scheduling, event): events of one moment happen in the order of the calls.
        self._queue: list[tuple[float, int, SimEvent]] = []
        self._sequence = 0
        # How many events happened; two runs of one seed agree on it.
        self.events_run = 0

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> SimEvent:
        """Let it happen after `delay_ms`, never within this call."""
        event = SimEvent(callback)
        self._sequence += 1
        due_ms = self.now_ms + max(0.0, delay_ms)
        heapq.heappush(self._queue, (due_ms, self._sequence, event))
        return event

    def run_for(self, duration_ms: float) -> None:
        """Let everything of the next `duration_ms` happen."""
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self._step()
        self.now_ms = end_ms

    def run_until(self, predicate: Callable[[], bool], limit_ms: float) -> bool:
        """Stop at the first moment at which `predicate()` holds; False when it does not in time."""
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
