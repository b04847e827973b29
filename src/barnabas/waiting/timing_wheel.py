"""A hierarchical timing wheel (Varghese and Lauck, scheme 6/7; Kafka's SystemTimer).

Insert and cancel are O(1) for any number of entries. Level 0 has `wheel_size` buckets of one tick;
each bucket of a higher level spans the whole level below. An entry far in the future is in a coarse
bucket, and moves to a lower level when the time of that bucket comes. The loop has one timer, set
to the earliest bucket with entries.

Buckets are dictionaries keyed by entry, which keep the insertion order and remove an entry in O(1).
An empty bucket is dropped when it is the earliest one.

Most pending operations complete before their timeout. `Timeouts` holds those with the same delay in
the order in which they were added, so they share one timer of the wheel. It is set for the oldest
operation, and stays set when this operation completes. Then the next operation costs no timer.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Cancellable, Clock, Timer


_TICK_MS = 1
_WHEEL_SIZE = 20


class WheelEntry:
    """A callback that runs at `due_tick` unless it is canceled."""

    __slots__ = ("_bucket", "_wheel", "callback", "due_tick")

    def __init__(self, wheel: TimingWheel, callback: Callable[[], None], due_tick: int) -> None:
        self._wheel = wheel
        self.callback = callback
        # The first tick at whose start the whole delay has passed.
        self.due_tick = due_tick
        # Bucket of the entry; None after it has fired or was canceled.
        self._bucket: _Bucket | None = None

    @property
    def waiting(self) -> bool:
        """Whether it has neither fired nor been canceled."""
        return self._bucket is not None

    def cancel(self) -> bool:
        """Cancel the entry; return whether it was pending."""
        bucket = self._bucket
        if bucket is None:
            return False
        self._bucket = None
        del bucket.entries[self]
        self._wheel.waiting_count -= 1
        # The callback often refers back to this entry; such a cycle would need garbage collection.
        self.callback = _nothing
        return True


class _Bucket:
    """Entries of one span of ticks. It may stay empty until its time comes."""

    __slots__ = ("entries", "level", "start_tick")

    def __init__(self, level: int, start_tick: int) -> None:
        self.level = level
        self.start_tick = start_tick
        self.entries: dict[WheelEntry, None] = {}


class TimingWheel:
    """Many delays on one loop timer, with a resolution of `tick_ms`; never early."""

    __slots__ = (
        "_armed",
        "_armed_tick",
        "_buckets",
        "_now_tick",
        "_sequence",
        "_start_ms",
        "_starts",
        "_tick_ms",
        "_timer",
        "_wheel_size",
        "clock",
        "waiting_count",
    )

    def __init__(
        self, clock: Clock, timer: Timer, tick_ms: float = _TICK_MS, wheel_size: int = _WHEEL_SIZE
    ) -> None:
        assert tick_ms > 0, tick_ms
        assert wheel_size > 1, wheel_size
        self.clock = clock
        self._timer = timer
        self._tick_ms = tick_ms
        self._wheel_size = wheel_size
        # Tick 0 is the time of construction.
        self._start_ms = clock.monotonic_ms()
        # Last processed tick; buckets that start at or before it are removed.
        self._now_tick = 0
        # Existing buckets by (level, index in the level).
        self._buckets: dict[tuple[int, int], _Bucket] = {}
        # Heap with one (start tick, creation number, bucket) for each of `_buckets`.
        self._starts: list[tuple[int, int, _Bucket]] = []
        # Creation number of the next bucket. Only increases: it orders buckets of equal start.
        self._sequence = 0
        # The loop timer for the earliest bucket, and the tick at which it fires; None without one.
        self._armed: Cancellable | None = None
        self._armed_tick = 0
        # Number of pending entries in all buckets.
        self.waiting_count = 0

    def add(self, delay_ms: float, callback: Callable[[], None]) -> WheelEntry:
        """Call `callback` after `delay_ms`, at most one tick plus the loop's delay late.

        The callback never runs before this returns.
        """
        elapsed_ms = self.clock.monotonic_ms() - self._start_ms
        reached = int(elapsed_ms / self._tick_ms)
        if not self._starts or self._starts[0][0] > reached:
            # Nothing was due since, so the wheel can advance without work. Otherwise, after an idle
            # time, the entry would get into a bucket that is too coarse.
            # Rounding may place the time just below a tick that has fired: never go back, or an
            # entry without delay would fire at the same time again and again.
            self._now_tick = max(self._now_tick, reached)
        due_tick = math.ceil((elapsed_ms + delay_ms) / self._tick_ms)
        entry = WheelEntry(self, callback, max(due_tick, self._now_tick + 1))
        self._place(entry)
        self.waiting_count += 1
        if self._armed is None or self._starts[0][0] < self._armed_tick:
            self._arm()
        return entry

    def close(self) -> None:
        """Cancel all entries."""
        for bucket in self._buckets.values():
            for entry in list(bucket.entries):
                entry.cancel()
        self._buckets.clear()
        self._starts.clear()
        self._disarm()

    def _place(self, entry: WheelEntry) -> None:
        """Put the entry into the lowest level that reaches its due tick."""
        size = self._wheel_size
        level = 0
        width = 1
        while entry.due_tick // width - self._now_tick // width >= size:
            level += 1
            width *= size
        index = entry.due_tick // width
        bucket = self._buckets.get((level, index))
        if bucket is None:
            bucket = _Bucket(level, index * width)
            self._buckets[level, index] = bucket
            self._sequence += 1
            heapq.heappush(self._starts, (bucket.start_tick, self._sequence, bucket))
        bucket.entries[entry] = None
        entry._bucket = bucket

    def _advance(self) -> None:
        """Fire due entries, and move other entries of the reached buckets to lower levels."""
        self._armed = None
        now_ms = self.clock.monotonic_ms()
        reached = int((now_ms - self._start_ms) / self._tick_ms)
        if now_ms >= self._start_ms + self._armed_tick * self._tick_ms:
            # Rounding may place the time just below the armed tick. The tick counts as reached,
            # because it would be armed again without delay.
            reached = max(reached, self._armed_tick)
        due: list[WheelEntry] = []
        while self._starts and self._starts[0][0] <= reached:
            start, _, bucket = heapq.heappop(self._starts)
            del self._buckets[bucket.level, start // self._wheel_size**bucket.level]
            self._now_tick = max(self._now_tick, start)
            for entry in bucket.entries:
                if entry.due_tick <= reached:
                    due.append(entry)
                else:
                    self._place(entry)
        self._now_tick = max(self._now_tick, reached)
        self._arm()
        # In order of time, and of insertion within a tick.
        due.sort(key=_due_tick)
        self._fire(deque(due))

    def _fire(self, due: deque[WheelEntry]) -> None:
        """Run the callbacks of due entries.

        A callback may cancel a later entry. An exception does not skip the later entries.
        """
        try:
            while due:
                entry = due.popleft()
                callback = entry.callback
                if entry.cancel():
                    callback()
        finally:
            if due:
                self._timer.call_soon(partial(self._fire, due))

    def _arm(self) -> None:
        self._disarm()
        self._drop_empty_buckets()
        if self._starts:
            self._armed_tick = self._starts[0][0]
            due_ms = self._start_ms + self._armed_tick * self._tick_ms
            delay_ms = max(0.0, due_ms - self.clock.monotonic_ms())
            self._armed = self._timer.call_later(delay_ms, self._advance)

    def _drop_empty_buckets(self) -> None:
        """Drop buckets without entries, so that they do not wake the loop."""
        while self._starts and not self._starts[0][2].entries:
            start, _, bucket = heapq.heappop(self._starts)
            del self._buckets[bucket.level, start // self._wheel_size**bucket.level]

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None


def _nothing() -> None:
    """Replace the callback of an entry that has fired or was canceled."""


def _due_tick(entry: WheelEntry) -> int:
    return entry.due_tick


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
