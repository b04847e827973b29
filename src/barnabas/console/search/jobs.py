"""Searches that run as jobs: a page shows how far they are, and they end without a page.

A page waits a short time for its search. If the search needs longer, it goes on as a job of the
session, and the page looks at it again and again. A job that no page looked at for half a minute
pauses; the next look can let it go on. The number of jobs, their results and their lives are
bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientError
from barnabas.console.formats import size
from barnabas.console.messages.reading import LargeReads, RecordReader
from barnabas.console.search.expressions import ExpressionError, FilterTooSlowError
from barnabas.console.search.ranges import Plan, offset_bounds, ranges_at, read_partitions
from barnabas.console.search.results import Results
from barnabas.console.search.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas import aio
    from barnabas.console.messages.record_view import DecodedRecord, RecordView
    from barnabas.console.search.columns import Column
    from barnabas.console.search.conditions import Conditions
    from barnabas.console.search.expressions import ExpressionFilter
    from barnabas.console.search.ranges import Place
    from barnabas.console.settings import SearchLimits
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng

_log = logging.getLogger(__name__)

_MS_PER_S = 1000
# Jobs that read at the same time; others wait.
_RUNNING_MAX = 4
_JOBS_MAX = 16
# A job pauses when no page looked at it for this time, and is forgotten after the other (ms).
_UNSEEN_MS = 30_000
_FORGOTTEN_MS = 15 * 60_000
_ID_BYTES = 18


class State(enum.Enum):
    """What a job does."""

    RUNNING = "running"
    # It can go on.
    PAUSED = "paused"
    # It has examined everything, or found as many messages as a page has.
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched."""

    topic: str
    # None: all partitions.
    partition: int | None
    place: Place
    conditions: Conditions
    columns: tuple[Column, ...]
    # Maximum number of results.
    limit: int
    # Value of isolation.level.
    isolation: str
    view: RecordView
    # The session and role, and the fields of the address, by which the job is found again.
    owner: object
    address: Mapping[str, str]


async def make_plan(consumer: aio.Consumer, search: Search, window: int) -> tuple[Plan, int]:
    """Return the offsets that a search examines, and the number of partitions of the topic.

    Args:
        consumer: Looks up offsets.
        search: What is searched.
        window: Offsets of all partitions together in one step back from the end.

    Raises:
        UnknownPartitionError: The wanted partition does not exist.
    """
    partitions, count = await read_partitions(consumer, search.topic, search.partition)
    bounds = await offset_bounds(consumer, partitions)
    ranges = await ranges_at(consumer, bounds, search.place)
    if not search.place.is_newest:
        return Plan(ranges, None), count
    share = window // max(1, len(ranges)) if search.conditions else 0
    return Plan(ranges, max(search.limit, share)), count


@dataclass(slots=True)
class Totals:
    """What a search has examined so far."""

    records: int = 0
    size: int = 0
    # Records for which the expression failed, and why it did for the first one.
    failed: int = 0
    failure: str = ""
    # Time for which the search has run (ms).
    run_ms: float = 0.0

    @property
    def rate(self) -> float | None:
        """Records per second; None at the beginning."""
        return self.records / self.run_ms * _MS_PER_S if self.run_ms > 0 else None

    def add(self, scan: Scan) -> None:
        """Add what a scan has examined, and count it from zero again."""
        self.records += scan.records
        self.size += scan.size
        self.failed += scan.failed
        self.failure = self.failure or scan.failure
        scan.records = scan.size = scan.failed = 0


class SearchJob:
    """One search. Only `SearchJobs` starts and stops it."""

    def __init__(self, job_id: str, search: Search, jobs: SearchJobs) -> None:
        self.id = job_id
        self.search = search
        self._jobs = jobs
        self.state = State.RUNNING
        # Why the job paused or failed; "" otherwise.
        self.reason = ""
        # The error of a failed job.
        self.error: Exception | None = None
        self.results = Results(search.columns, search.limit, keeps_newest=search.place.is_newest)
        self.totals = Totals()
        # None until the job knows the offsets.
        self.plan: Plan | None = None
        self.partition_count = 0
        # How often the job may reach its limits: once more after each pause.
        self._rounds = 1
        # When a page looked at the job (ms, monotonic clock).
        self.seen_ms = 0.0
        self.task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the job reads, or waits for its turn."""
        return self.state is State.RUNNING

    @property
    def total(self) -> int:
        """Number of offsets that the job examines in all; 0 until it knows."""
        return 0 if self.plan is None else self.plan.total

    @property
    def examined(self) -> int:
        """Number of offsets that the job has examined."""
        return 0 if self.plan is None else self.plan.total - self.plan.remaining

    @property
    def next_offsets(self) -> dict[int, int]:
        """Where another search finds further messages, by partition."""
        if self.plan is None:
            return {}
        return {**self.plan.next_offsets(), **self.results.dropped}

    async def wait(self, seconds: float) -> None:
        """Wait until the job ends, but no longer than this."""
        if self.task is not None:
            await asyncio.wait({self.task}, timeout=seconds)

    def end(self, state: State, reason: str = "") -> None:
        """Let the job end; it stops at its next slice of records."""
        assert state is not State.RUNNING
        if self.is_running:
            self.state, self.reason = state, reason

    async def run(self) -> None:
        """Search until the end, a limit, or a stop. Errors become the reason."""
        try:
            await self._run()
        except (ClientError, ExpressionError, FilterTooSlowError, TimeoutError) as error:
            self.error = error
            self.end(State.FAILED, str(error) or "the brokers did not answer in time")
        except Exception as error:  # noqa: BLE001 - logged with its traceback
            _log.exception("A search of messages failed")
            self.error = error
            self.end(State.FAILED, f"the search failed: {type(error).__name__}")

    async def _run(self) -> None:
        search = self.search
        reader = self._jobs.reader(search.isolation)
        async with self._jobs.turns, contextlib.aclosing(reader):
            if search.conditions.expression and self.plan is None:
                await self._jobs.expressions.check(search.conditions.expression)
            if self.plan is None:
                window = self._jobs.limits.window
                self.plan, self.partition_count = await make_plan(reader.consumer, search, window)
            scan = Scan(reader, search.view, search.conditions, self._jobs.expressions)
            while self.is_running:
                if self._begin_step(self.plan):
                    await self._read_step(self.plan, scan)
                else:
                    self.end(State.DONE)

    def _begin_step(self, plan: Plan) -> bool:
        """Return whether there is anything to read. A step that was begun is read to its end."""
        if not plan.step:
            self.results.begin_window()
            if self.results.is_full:
                return False
        return plan.begin_step()

    async def _read_step(self, plan: Plan, scan: Scan) -> None:
        """Examine the offsets of a step, or as many as the job may."""
        clock, before_ms = self._jobs.clock, self._jobs.clock.monotonic_ms()
        async with contextlib.aclosing(scan.read(plan.step)) as parts:
            async for found in parts:
                self._keep(found, scan)
                plan.advance(scan.left)
                self.totals.add(scan)
                now_ms = clock.monotonic_ms()
                self.totals.run_ms += now_ms - before_ms
                before_ms = now_ms
                self._check_limits(now_ms)
                if not self.is_running:
                    return

    def _keep(self, found: list[DecodedRecord], scan: Scan) -> None:
        for record in found:
            self.results.add(record)
            if self.results.is_full and not self.search.place.is_newest:
                scan.return_to(record)
                self.end(State.DONE)
                return

    def _check_limits(self, now_ms: float) -> None:
        limits, totals, rounds = self._jobs.limits, self.totals, self._rounds
        if now_ms - self.seen_ms > _UNSEEN_MS:
            self.end(State.PAUSED, "it paused because no page looked at it")
        elif totals.run_ms >= rounds * limits.seconds * _MS_PER_S:
            self.end(State.PAUSED, f"it stopped at its limit of {limits.seconds:g} s")
        elif totals.records >= rounds * limits.records:
            self.end(State.PAUSED, f"it stopped at its limit of {limits.records} records")
        elif totals.size >= rounds * limits.size:
            self.end(State.PAUSED, f"it stopped at its limit of {size(limits.size)}")

    def resume(self) -> None:
        """Run again after a pause, with the limits of another round."""
        assert self.state is State.PAUSED, f"a job that is {self.state.value} cannot go on"
        self._rounds += 1
        self.state, self.reason = State.RUNNING, ""


class SearchJobs:
    """All jobs of a console.

    Args:
        clock: Measures the time.
        rng: Makes the ids of jobs.
        limits: Where each job pauses.
        open_consumer: Returns a consumer without a group, with further configuration.
        large_reads: The turns of large fetches.
        expressions: Evaluates filters.
    """

    def __init__(
        self,
        clock: Clock,
        rng: Rng,
        limits: SearchLimits,
        open_consumer: Callable[..., aio.Consumer],
        expressions: ExpressionFilter,
    ) -> None:
        self.clock = clock
        self.limits = limits
        self._open_consumer = open_consumer
        self.large_reads = LargeReads()
        self.expressions = expressions
        self._rng = rng
        self.turns = asyncio.Semaphore(_RUNNING_MAX)
        # By id, in the order in which they began.
        self._jobs: dict[str, SearchJob] = {}

    def reader(self, isolation: str, *, is_careful: bool = True) -> RecordReader:
        """Return a reader of records, which the caller closes.

        Args:
            isolation: The value of isolation.level.
            is_careful: See `RecordReader`.
        """
        return RecordReader(self._open_consumer, self.large_reads, isolation, is_careful=is_careful)

    def start(self, search: Search) -> SearchJob | None:
        """Start a job; None if too many run."""
        self._forget()
        if len(self._jobs) >= _JOBS_MAX:
            ended = [job for job in self._jobs.values() if not job.is_running]
            if not ended:
                return None
            del self._jobs[min(ended, key=lambda job: job.seen_ms).id]
        job = SearchJob(self._rng.token(_ID_BYTES).hex(), search, self)
        self._jobs[job.id] = job
        self._run(job)
        return job

    def look_at(self, job_id: str, owner: object) -> SearchJob | None:
        """Return a job of a session, and keep it alive; None if there is none."""
        self._forget()
        job = self._jobs.get(job_id)
        if job is None or job.search.owner != owner:
            return None
        job.seen_ms = self.clock.monotonic_ms()
        return job

    def stop(self, job: SearchJob) -> None:
        """Pause a job, because the reader wants it."""
        job.end(State.PAUSED, "it was stopped")

    def go_on(self, job: SearchJob) -> None:
        """Let a paused job go on."""
        if job.state is State.PAUSED:
            job.resume()
            self._run(job)

    def forget(self, job: SearchJob) -> None:
        """Forget a job whose results were shown in full."""
        assert not job.is_running, "a running job must be found again"
        self._jobs.pop(job.id, None)

    async def close(self) -> None:
        """End all jobs."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._jobs.clear()

    def _run(self, job: SearchJob) -> None:
        before = job.task
        job.seen_ms = self.clock.monotonic_ms()

        async def run() -> None:
            if before is not None:
                # A stopped job may still read its last slice.
                await asyncio.wait({before})
            await job.run()

        job.task = asyncio.get_running_loop().create_task(run())

    def _forget(self) -> None:
        now_ms = self.clock.monotonic_ms()
        for job in list(self._jobs.values()):
            if not job.is_running and now_ms - job.seen_ms > _FORGOTTEN_MS:
                del self._jobs[job.id]
