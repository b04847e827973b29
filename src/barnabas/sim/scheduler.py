"""Virtual time: one queue of events for all simulated hosts, run in a deterministic order."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


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

    __slots__ = ("_queue", "_sequence", "events_run", "now_ms")

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
