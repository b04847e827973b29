"""Queue for work on records: conversion of old formats, validation of batches, timestamp lookups.

Such work runs Python code for each record. It runs in steps, one per turn of the loop, so that
other requests run in between. Short work is done immediately. A lane is a queue of jobs that keep
their order. The lanes take turns. The executor runs long calls into C.

The memory for the results of these calls is bounded for all lanes together. A job is admitted with
all memory that it may take, or it waits and has none. So the jobs that have memory never wait for
memory, each of them ends, and its memory admits the next job. When the size of a result is known,
the job gives up the memory that it does not need. Waiting jobs are admitted in first-in-first-out
order, which prevents starvation.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.connection import Connection
    from barnabas.runtime.clock import Timer
    from barnabas.runtime.executor import Executor
    from barnabas.waiting.steps import OffLoop, Steps


# Limit of the memory (bytes) of all admitted jobs. A job that needs more is admitted alone.
HELD_BYTES_MAX = 128 << 20


class ConversionQueue:
    """Runs generators that yield between two steps and return a result."""

    def __init__(
        self, timer: Timer, executor: Executor, held_bytes_max: int = HELD_BYTES_MAX
    ) -> None:
        self._timer = timer
        self._executor = executor
        self._held_bytes_max = held_bytes_max
        # Unfinished jobs by lane. Invariant: no lane is empty.
        self._lanes: dict[object, deque[Job]] = {}
        # Lanes whose first job can take a step. The first lane gets the next turn. All other lanes
        # wait for an executor call.
        self._ready: deque[object] = deque()
        # Whether a turn of the loop is scheduled.
        self._is_turn_due = False
        # Lanes whose first job waits for memory, in first-in-first-out order. Invariant: these jobs
        # hold no memory.
        self._unadmitted: deque[object] = deque()
        # Sum of the memory (bytes) of all admitted jobs.
        self._held_bytes = 0

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    @property
    def held_bytes(self) -> int:
        """Upper bound of the memory (bytes) that all admitted jobs use now."""
        return self._held_bytes

    def submit(
        self,
        lane: object,
        steps: Steps,
        on_done: Callable[[Any], None],
        connection: Connection | None = None,
    ) -> Job:
        """Run a job until it ends.

        Args:
            lane: any hashable value. Jobs of the same lane end in the order of their submission.
            steps: generator of the job. Its first step may raise. Later steps return errors as a
                result; an unexpected exception closes the connection.
            on_done: called with the result of `steps`, perhaps before this method returns.
            connection: the connection of the request. No further requests are read from it until
                the job ends, which bounds the memory of the jobs by the number of connections.

        Returns:
            The job, to cancel it when its client is gone.
        """
        job = Job(self, lane, steps, on_done)
        if lane in self._lanes:
            self._lanes[lane].append(job)
        else:
            self._lanes[lane] = deque((job,))
            self._run_step(lane)
        if connection is not None and not job.is_done:
            job.connection = connection
            connection.begin_work()
        return job

    def cancel(self, job: Job) -> None:
        """Let a job make no further step. See `Job.cancel`."""
        if job.is_done:
            return
        job.is_canceled = True
        if job.unadmitted_call is not None:
            job.unadmitted_call = None
            self._unadmitted.remove(job.lane)
            self._make_ready(job.lane)
            self._admit()

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
        if job.is_canceled:
            job.steps.close()
            self._finish(lane, job)
            job.end_work()
            return
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
            if job.connection is not None:
                # The request gets no response. The client repeats it on another connection.
                job.connection.abort()
            raise
        if call is None:
            self._make_ready(lane)
        elif call.memory_bytes_max is None:
            self._start_call(lane, job, call)
        else:
            self._release_memory(job)
            job.unadmitted_call = call
            self._unadmitted.append(lane)
            self._admit()

    def _finish(self, lane: object, job: Job) -> None:
        jobs = self._lanes[lane]
        jobs.popleft()
        job.is_done = True
        if jobs:
            self._make_ready(lane)
        else:
            del self._lanes[lane]
        if job.held_bytes:
            self._release_memory(job)
            self._admit()

    def _release_memory(self, job: Job) -> None:
        self._held_bytes -= job.held_bytes
        job.held_bytes = 0

    def _admit(self) -> None:
        """Admit the waiting jobs for which there is enough memory, and start their calls."""
        while self._unadmitted:
            lane = self._unadmitted[0]
            job = self._lanes[lane][0]
            call = job.unadmitted_call
            assert call is not None, "a waiting job has a call"
            assert not job.held_bytes, f"a waiting job holds {job.held_bytes} bytes"
            needed = call.memory_bytes_max or 0
            if self._held_bytes and self._held_bytes + needed > self._held_bytes_max:
                return
            self._unadmitted.popleft()
            job.unadmitted_call = None
            job.held_bytes = needed
            self._held_bytes += needed
            self._start_call(lane, job, call)

    def _start_call(self, lane: object, job: Job, call: OffLoop) -> None:
        self._executor.submit(call.work, partial(self._on_call_done, lane, job, call))

    def _on_call_done(
        self, lane: object, job: Job, call: OffLoop, result: Any, error: BaseException | None
    ) -> None:
        job.call_result = result if error is None else error
        self._make_ready(lane)
        if error is None and call.memory_of is not None:
            unused = max(0, job.held_bytes - call.memory_of(result))
            job.held_bytes -= unused
            self._held_bytes -= unused
            self._admit()


class Job:
    """A generator in the queue."""

    __slots__ = (
        "_queue",
        "call_result",
        "connection",
        "held_bytes",
        "is_canceled",
        "is_done",
        "lane",
        "on_done",
        "steps",
        "unadmitted_call",
    )

    def __init__(
        self, queue: ConversionQueue, lane: object, steps: Steps, on_done: Callable[[Any], None]
    ) -> None:
        self._queue = queue
        self.lane = lane
        self.steps = steps
        self.on_done = on_done
        # The executor call that waits for memory. None without such a call.
        self.unadmitted_call: OffLoop | None = None
        # Value for the next step: the result of a call, or the error that it raised.
        self.call_result: Any = None
        # Memory (bytes) that the job was admitted with. 0 while it waits for memory.
        self.held_bytes = 0
        # Connection that is not read until the job ends.
        self.connection: Connection | None = None
        self.is_done = False
        # Whether the job ends at its next turn. Never reset.
        self.is_canceled = False

    def cancel(self) -> None:
        """End the job at its next turn, without a call of `on_done`. It waits for no memory."""
        self._queue.cancel(self)

    def end_work(self) -> None:
        """Resume reading requests from the job's connection."""
        if self.connection is not None:
            self.connection.end_work()
