"""A hierarchical timing wheel (Varghese and Lauck, scheme 6/7; Kafka: SystemTimer).

Insert and cancel are O(1) whatever the number that waits. Level 0 has `wheel_size` buckets of one
tick; each bucket of a level is as wide as the whole level below. An entry that lies further away
sits in a coarse bucket and moves down when that bucket's time comes. Only buckets with something
in them are known to the loop: one timer is armed, for the earliest.

Buckets are dictionaries keyed by the entry, which keep the order of insertion and let an entry
leave in O(1); a bucket exists only while it holds something.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.timer import Cancellable, Timer

_TICK_MS = 1
_WHEEL_SIZE = 20


class WheelEntry:
    """Something that happens at `due_tick` unless cancelled before."""

    __slots__ = ("_bucket", "_wheel", "callback", "due_tick")

    def __init__(self, wheel: TimingWheel, callback: Callable[[], None], due_tick: int) -> None:
        self._wheel = wheel
        self.callback = callback
        # The first tick at whose start the whole delay has passed.
        self.due_tick = due_tick
        # Where it waits; None once fired or cancelled.
        self._bucket: _Bucket | None = None

    @property
    def waiting(self) -> bool:
        """Whether it has neither fired nor been cancelled."""
        return self._bucket is not None

    def cancel(self) -> bool:
        """Take it out; returns whether it was still waiting."""
        bucket = self._bucket
        if bucket is None:
            return False
        self._bucket = None
        del bucket.entries[self]
        self._wheel.waiting_count -= 1
        # The callback often leads back to this entry: such a circle would be garbage to collect.
        self.callback = _nothing
        return True


class _Bucket:
    """Entries of one span of ticks. Outlives its last entry until its time comes."""

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
        "_clock",
        "_now_tick",
        "_sequence",
        "_start_ms",
        "_starts",
        "_tick_ms",
        "_timer",
        "_wheel_size",
        "waiting_count",
    )

    def __init__(
        self,
        clock: Clock,
        timer: Timer,
        tick_ms: float = _TICK_MS,
        wheel_size: int = _WHEEL_SIZE,
    ) -> None:
        assert tick_ms > 0, tick_ms
        assert wheel_size > 1, wheel_size
        self._clock = clock
        self._timer = timer
        self._tick_ms = tick_ms
        self._wheel_size = wheel_size
        # Tick 0 is the moment of construction.
        self._start_ms = clock.monotonic_ms()
        # The last tick that was worked off; buckets that start at or before it are gone.
        self._now_tick = 0
        # Existing buckets by (level, index in the level).
        self._buckets: dict[tuple[int, int], _Bucket] = {}
        # A heap of (start tick, order of making, bucket), one for each of _buckets.
        self._starts: list[tuple[int, int, _Bucket]] = []
        self._sequence = 0
        self._armed: Cancellable | None = None
        self._armed_tick = 0
        # Entries that wait, in all buckets.
        self.waiting_count = 0

    def add(self, delay_ms: float, callback: Callable[[], None]) -> WheelEntry:
        """Call back once `delay_ms` has passed, at most a tick and the loop's delay late.

        The callback never runs before this returns.
        """
        elapsed_ms = self._clock.monotonic_ms() - self._start_ms
        reached = int(elapsed_ms / self._tick_ms)
        if not self._starts or self._starts[0][0] > reached:
            # Nothing was due meanwhile, so that the wheel may turn for free: after an idle time
            # the entry would land in too coarse a bucket otherwise.
            self._now_tick = reached
        due_tick = math.ceil((elapsed_ms + delay_ms) / self._tick_ms)
        entry = WheelEntry(self, callback, max(due_tick, self._now_tick + 1))
        self._place(entry)
        self.waiting_count += 1
        if self._armed is None or self._starts[0][0] < self._armed_tick:
            self._arm()
        return entry

    def close(self) -> None:
        """Forget everything; nothing fires any more."""
        for bucket in self._buckets.values():
            for entry in list(bucket.entries):
                entry.cancel()
        self._buckets.clear()
        self._starts.clear()
        self._disarm()

    def _place(self, entry: WheelEntry) -> None:
        """Put it into the finest level that reaches as far as its due tick."""
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
        """The armed time has come: fire what is due, move down what is not."""
        self._armed = None
        now_ms = self._clock.monotonic_ms()
        reached = int((now_ms - self._start_ms) / self._tick_ms)
        if now_ms >= self._start_ms + self._armed_tick * self._tick_ms:
            # The difference of two times may be rounded to just below the tick: it has come all
            # the same, and would be armed again without any delay.
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
        """One may cancel a later one; one that raises does not take the later ones with it."""
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
            delay_ms = max(0.0, due_ms - self._clock.monotonic_ms())
            self._armed = self._timer.call_later(delay_ms, self._advance)

    def _drop_empty_buckets(self) -> None:
        """Do not wake the loop for a bucket whose entries were all cancelled."""
        while self._starts and not self._starts[0][2].entries:
            start, _, bucket = heapq.heappop(self._starts)
            del self._buckets[bucket.level, start // self._wheel_size**bucket.level]

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None


def _nothing() -> None:
    """Take the place of the callback of an entry that has fired or was canceled."""


def _due_tick(entry: WheelEntry) -> int:
    return entry.due_tick
