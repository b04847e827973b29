"""Queue for work on records: conversion of old formats, validation of batches, timestamp lookups.

Such work runs Python code for each record. It runs in steps, one per turn of the loop, so that
other requests run in between. Short work is done immediately. A lane is a queue of jobs that keep
their order. The lanes take turns. The executor runs long calls into C. The memory for their results
is bounded for all lanes together.
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

# Limit of the memory (bytes) for results of executor calls. One result may exceed it when alone.
HELD_BYTES_MAX = 128 << 20


class ConversionQueue:
    """Runs generators that yield between two steps and return a result."""

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
        # Unfinished jobs by lane. Invariant: no lane is empty.
        self._lanes: dict[object, deque[_Job]] = {}
        # Lanes whose first job can take a step. The first lane gets the next turn. All other lanes
        # wait for an executor call.
        self._ready: deque[object] = deque()
        # Whether a turn of the loop is scheduled.
        self._is_turn_due = False
        # Lanes whose executor call waits for memory, in first-in-first-out order.
        self._postponed: deque[object] = deque()
        # Upper bound of the memory (bytes) that results of executor calls use now.
        self._held_bytes = 0

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    @property
    def held_bytes(self) -> int:
        """Upper bound of the memory (bytes) that results of executor calls use now."""
        return self._held_bytes

    def submit(
        self,
        lane: object,
        steps: Steps,
        on_done: Callable[[Any], None],
        connection: Connection | None = None,
    ) -> None:
        """Run a job until it ends.

        Args:
            lane: any hashable value. Jobs of the same lane end in the order of their submission.
            steps: generator of the job. Only its first step may raise. Later steps must return
                errors as a result.
            on_done: called with the result of `steps`, perhaps before this method returns.
            connection: the connection of the request. No further requests are read from it until
                the job ends, which bounds the memory of the jobs by the number of connections.
        """
        job = _Job(steps, on_done)
        if lane in self._lanes:
            self._lanes[lane].append(job)
        else:
            self._lanes[lane] = deque((job,))
            self._run_step(lane)
        if connection is not None and not job.is_done:
            job.connection = connection
            connection.begin_work()

    def _turn(self) -> None:
        self._is_turn_due = False
        try:
            self._run_step(self._ready.popleft())
        finally:
            self._schedule()

    def _make_ready(self, lane: object) -> None:
        self._ready.append(lane)
        self._schedule()

    def _schedule(self) -> None:
        if self._ready and not self._is_turn_due:
            self._is_turn_due = True
            self._timer.call_soon(self._turn)

    def _run_step(self, lane: object) -> None:
        job = self._lanes[lane][0]
        call_result, job.call_result = job.call_result, None
        try:
            if isinstance(call_result, BaseException):
                call = job.steps.throw(call_result)
            else:
                call = job.steps.send(call_result)
        except StopIteration as end:
            # Remove the job before `on_done`, which may submit the next job.
            self._finish(lane, job)
            job.on_done(end.value)
            job.end_work()
            return
        except BaseException:
            self._finish(lane, job)
            job.end_work()
            raise
        if call is None:
            self._make_ready(lane)
            return
        job.call = call
        if call.result_bytes_max is not None:
            self._release_memory(job)
        self._postponed.append(lane)
        self._start_calls()

    def _finish(self, lane: object, job: _Job) -> None:
        jobs = self._lanes[lane]
        jobs.popleft()
        job.is_done = True
        if jobs:
            self._make_ready(lane)
        else:
            del self._lanes[lane]
        if job.held_bytes:
            self._release_memory(job)
            self._start_calls()

    def _release_memory(self, job: _Job) -> None:
        self._held_bytes -= job.held_bytes
        job.held_bytes = 0

    def _start_calls(self) -> None:
        """Start the postponed executor calls for which there is enough memory."""
        while self._postponed:
            lane = self._postponed[0]
            job = self._lanes[lane][0]
            assert job.call is not None, "a postponed job has a call"
            result_bytes_max = job.call.result_bytes_max or 0
            if self._held_bytes and self._held_bytes + result_bytes_max > HELD_BYTES_MAX:
                return
            self._postponed.popleft()
            if job.call.result_bytes_max is not None:
                job.held_bytes = result_bytes_max
                self._held_bytes += result_bytes_max
            work, job.call = job.call.work, None
            self._executor.submit(work, partial(self._on_call_done, lane, job))

    def _on_call_done(
        self, lane: object, job: _Job, result: Any, error: BaseException | None
    ) -> None:
        job.call_result = result if error is None else error
        self._make_ready(lane)


class _Job:
    __slots__ = ("call", "call_result", "connection", "held_bytes", "is_done", "on_done", "steps")

    def __init__(self, steps: Steps, on_done: Callable[[Any], None]) -> None:
        self.steps = steps
        self.on_done = on_done
        # The executor call that the job waits to start. None without such a call.
        self.call: OffLoop | None = None
        # Value for the next step: the result of a call, or the error that it raised.
        self.call_result: Any = None
        # Memory (bytes) that the job has reserved for the result of its call.
        self.held_bytes = 0
        # Connection that is not read until the job ends.
        self.connection: Connection | None = None
        self.is_done = False

    def end_work(self) -> None:
        """Resume reading requests from the job's connection."""
        if self.connection is not None:
            self.connection.end_work()
