"""Where work on records waits for its turns on the loop: conversion of old message formats, looking
into the batches of producers, looking for a timestamp in a batch.

It costs Python's time per record. It is done in steps, one per turn of the loop, so that other
requests go on in between, and little work is done at once. Jobs of one lane keep their order; lanes
take turns. Long calls into C are made by the executor, and what they may take in memory is bounded
for all lanes together.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.connection import Connection
    from barnabas.runtime.executor import Executor
    from barnabas.runtime.timer import Timer
    from barnabas.waiting.off_loop import OffLoop, Steps

# What results of calls off the loop may take in memory together. A single one may take more, when
# nothing else is held.
HELD_BYTES_MAX = 128 << 20


class ConversionQueue:
    """Takes generators that yield between two steps and return the result."""

    __slots__ = (
        "_executor",
        "_held_bytes",
        "_is_turn_due",
        "_lanes",
        "_postponed",
        "_ready",
        "_timer",
    )

    def __init__(self, timer: Timer, executor: Executor) -> None:
        self._timer = timer
        self._executor = executor
        # Jobs that are not done by lane, none of them empty.
        self._lanes: dict[object, deque[_Job]] = {}
        # Lanes whose first job can take a step; the first one has the next turn. The others wait
        # for a call off the loop.
        self._ready: deque[object] = deque()
        # Whether the loop was asked for a turn.
        self._is_turn_due = False
        # Lanes whose call is made when enough memory is given back, in their order.
        self._postponed: deque[object] = deque()
        # What the results of calls may take.
        self._held_bytes = 0

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    @property
    def held_bytes(self) -> int:
        """What the results of calls off the loop may take in memory now."""
        return self._held_bytes

    def submit(
        self,
        lane: object,
        steps: Steps,
        on_done: Callable[[Any], None],
        connection: Connection | None = None,
    ) -> None:
        """Run a job to its end.

        Args:
            lane: anything hashable; jobs of the same one end in the order in which they came.
            steps: may raise in its first step only; later on it has to turn what it meets into
                its result.
            on_done: gets what `steps` returns; may be called before this returns.
            connection: whose request it is. No more requests are taken from it until the job is
                done, so that jobs hold no more memory than there are connections to fill.
        """
        job = _Job(steps, on_done)
        if lane in self._lanes:
            self._lanes[lane].append(job)
        else:
            self._lanes[lane] = deque((job,))
            self._take_step(lane)
        if connection is not None and not job.is_done:
            job.connection = connection
            connection.begin_work()

    def _turn(self) -> None:
        self._is_turn_due = False
        try:
            self._take_step(self._ready.popleft())
        finally:
            self._schedule()

    def _make_ready(self, lane: object) -> None:
        self._ready.append(lane)
        self._schedule()

    def _schedule(self) -> None:
        if self._ready and not self._is_turn_due:
            self._is_turn_due = True
            self._timer.call_soon(self._turn)

    def _take_step(self, lane: object) -> None:
        job = self._lanes[lane][0]
        answer, job.answer = job.answer, None
        try:
            if isinstance(answer, BaseException):
                asked = job.steps.throw(answer)
            else:
                asked = job.steps.send(answer)
        except StopIteration as end:
            # Gone before its result is handed over: that may bring the next job.
            self._finish(lane, job)
            job.on_done(end.value)
            job.end_work()
            return
        except BaseException:
            self._finish(lane, job)
            job.end_work()
            raise
        if asked is None:
            self._make_ready(lane)
            return
        job.asked = asked
        if asked.result_bytes_max is not None:
            self._release(job)
        self._postponed.append(lane)
        self._make_calls()

    def _finish(self, lane: object, job: _Job) -> None:
        jobs = self._lanes[lane]
        jobs.popleft()
        job.is_done = True
        if jobs:
            self._make_ready(lane)
        else:
            del self._lanes[lane]
        if job.held_bytes:
            self._release(job)
            self._make_calls()

    def _release(self, job: _Job) -> None:
        self._held_bytes -= job.held_bytes
        job.held_bytes = 0

    def _make_calls(self) -> None:
        """Make the calls for which there is memory."""
        while self._postponed:
            lane = self._postponed[0]
            job = self._lanes[lane][0]
            assert job.asked is not None, "only a job that asked for a call is postponed"
            wanted = job.asked.result_bytes_max or 0
            if self._held_bytes and self._held_bytes + wanted > HELD_BYTES_MAX:
                return
            self._postponed.popleft()
            if job.asked.result_bytes_max is not None:
                job.held_bytes = wanted
                self._held_bytes += wanted
            work, job.asked = job.asked.work, None
            self._executor.submit(work, partial(self._on_called, lane, job))

    def _on_called(self, lane: object, job: _Job, result: Any, error: BaseException | None) -> None:
        job.answer = result if error is None else error
        self._make_ready(lane)


class _Job:
    __slots__ = ("answer", "asked", "connection", "held_bytes", "is_done", "on_done", "steps")

    def __init__(self, steps: Steps, on_done: Callable[[Any], None]) -> None:
        self.steps = steps
        self.on_done = on_done
        # The call that it waits for before it is made; None for none.
        self.asked: OffLoop | None = None
        # What the next step is sent: the result of a call, or the error that it raised.
        self.answer: Any = None
        # Its part of what is held.
        self.held_bytes = 0
        # Of which no more requests are taken meanwhile.
        self.connection: Connection | None = None
        self.is_done = False

    def end_work(self) -> None:
        """Take requests of its connection again."""
        if self.connection is not None:
            self.connection.end_work()
