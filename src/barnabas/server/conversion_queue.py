"""Where the conversion of old message formats waits for its turns on the loop.

Converting costs Python's time per record. It is done in steps, one per turn of the loop, so that
requests of modern clients go on in between, and small sets are done at once. Jobs of one lane keep
their order; lanes take turns.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.runtime.timer import Timer

    Steps = Generator[None, None, Any]
    Job = tuple[Steps, Callable[[Any], None], int]

# Bytes that waiting jobs may hold; whoever comes on top of that is converted at once, which keeps
# the loop from reading more.
HELD_BYTES_MAX = 64 << 20


class ConversionQueue:
    """Takes generators that yield between two steps and return the result."""

    __slots__ = ("_held_bytes", "_lanes", "_timer")

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        # Jobs that are not done by lane, none of them empty; the first lane has the next turn.
        self._lanes: dict[object, deque[Job]] = {}
        self._held_bytes = 0

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def submit(
        self,
        lane: object,
        steps: Generator[None, None, Any],
        on_done: Callable[[Any], None],
        held_bytes: int = 0,
    ) -> None:
        """Run a job to its end.

        Args:
            lane: anything hashable; jobs of the same one end in the order in which they came.
            steps: may raise in its first step only; later on it has to turn what it meets into
                its result.
            on_done: gets what `steps` returns; may be called before this returns.
            held_bytes: what the job keeps in memory.
        """
        is_first = lane not in self._lanes
        if is_first and not self._lanes:
            self._timer.call_soon(self._turn)
        self._lanes.setdefault(lane, deque()).append((steps, on_done, held_bytes))
        self._held_bytes += held_bytes
        if is_first:
            self._take_step(lane)
        while self._held_bytes > HELD_BYTES_MAX and lane in self._lanes:
            self._take_step(lane)

    def _turn(self) -> None:
        lane = next(iter(self._lanes), None)
        if lane is None:
            return
        try:
            self._take_step(lane)
        finally:
            if lane in self._lanes:
                self._lanes[lane] = self._lanes.pop(lane)
            if self._lanes:
                self._timer.call_soon(self._turn)

    def _take_step(self, lane: object) -> None:
        jobs = self._lanes[lane]
        steps, on_done, held_bytes = jobs[0]
        is_over = True
        try:
            next(steps)
            is_over = False
        except StopIteration as end:
            result = end.value
        finally:
            # Gone before its result is handed over: that may bring the next job.
            if is_over:
                self._held_bytes -= held_bytes
                jobs.popleft()
                if not jobs:
                    del self._lanes[lane]
        if is_over:
            on_done(result)
