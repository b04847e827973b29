"""Timeouts of pending operations, most of which complete earlier.

Operations with the same delay expire in the order in which they were added, so they share one timer
of the wheel. The timer is set for the oldest operation, and stays set when this operation
completes. Then the next operation costs no timer.
"""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

# With more different delays, a timer is canceled as soon as no operation needs it. So clients
# cannot leave timers behind by requests that each have another delay.
_DELAYS_MAX = 16


class Expiring(Protocol):
    """An operation with a timeout."""

    # In ms. Never changes.
    delay_ms: float

    def expire(self) -> None:
        """Complete the operation after its timeout."""
        ...


class _Queue:
    """The operations with one delay."""

    __slots__ = ("due_ms", "entry")

    def __init__(self) -> None:
        # When each operation expires, in monotonic ms. The oldest operation is first.
        self.due_ms: dict[Expiring, float] = {}
        # The timer. None while it runs.
        self.entry: WheelEntry | None = None


class Timeouts:
    """The pending operations of one purgatory, by delay."""

    __slots__ = ("_queues", "_wheel")

    def __init__(self, wheel: TimingWheel) -> None:
        self._wheel = wheel
        # Each queue has a timer that is set or is running.
        self._queues: dict[float, _Queue] = {}

    def add(self, operation: Expiring) -> None:
        """Expire the operation after its delay, unless it is removed before."""
        delay_ms = operation.delay_ms
        queue = self._queues.get(delay_ms)
        if queue is None:
            queue = self._queues[delay_ms] = _Queue()
            queue.entry = self._wheel.add(delay_ms, partial(self._expire, delay_ms, queue))
        queue.due_ms[operation] = self._wheel.clock.monotonic_ms() + delay_ms

    def remove(self, operation: Expiring) -> None:
        """Remove an operation that has completed. Ignore an operation that has expired."""
        queue = self._queues.get(operation.delay_ms)
        if queue is None or queue.due_ms.pop(operation, None) is None or queue.due_ms:
            return
        if len(self._queues) > _DELAYS_MAX and queue.entry is not None:
            queue.entry.cancel()
            del self._queues[operation.delay_ms]

    def close(self) -> None:
        """Remove all operations."""
        for queue in self._queues.values():
            queue.due_ms.clear()
            if queue.entry is not None:
                queue.entry.cancel()
        self._queues.clear()

    def _expire(self, delay_ms: float, queue: _Queue) -> None:
        """Expire the operations that are due, and set the timer for the oldest of the others."""
        queue.entry = None
        now_ms = self._wheel.clock.monotonic_ms()
        due = takewhile(lambda each: each[1] <= now_ms, queue.due_ms.items())
        try:
            for operation in [each for each, _ in due]:
                # It may have been removed by the operations before it.
                if queue.due_ms.pop(operation, None) is not None:
                    operation.expire()
        finally:
            # After an error of one operation, the others may be due.
            if queue.due_ms:
                rest_ms = max(0.0, queue.due_ms[next(iter(queue.due_ms))] - now_ms)
                queue.entry = self._wheel.add(rest_ms, partial(self._expire, delay_ms, queue))
            elif self._queues.get(delay_ms) is queue:
                del self._queues[delay_ms]
