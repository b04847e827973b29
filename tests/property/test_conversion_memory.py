"""The memory of jobs in the conversion queue, for random jobs, bounds and speeds of their calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from hypothesis import example, given, strategies as st

from barnabas.server.conversion.conversion_queue import ConversionQueue, Job
from barnabas.waiting.steps import OffLoop
from steps import Loop

# The actions of a job. Two numbers are a call with a maximum of memory, and what it needs of it.
STEP, CALL = "a step on the loop", "a call without a maximum"
Script = list[tuple[int, int] | str]

calls = st.integers(0, 150).flatmap(lambda most: st.tuples(st.just(most), st.integers(0, most)))
scripts = st.lists(st.one_of(calls, st.sampled_from([STEP, CALL])), max_size=6)
jobs = st.lists(st.tuples(st.integers(0, 4), scripts), max_size=12)


class Jobs:
    """Runs scripts, and checks their memory. It is also the executor, whose calls end in any order.

    Args:
        bound: the bound of the queue.
        rng: chooses the call that ends next.
    """

    def __init__(self, bound: int, rng: random.Random) -> None:
        self._bound = bound
        self._rng = rng
        self._calls: list[tuple[Callable[[], Any], Callable[[Any, Any], None]]] = []
        # Memory of each admitted job.
        self.held: dict[int, int] = {}
        # Jobs in the order in which they asked for memory, and in the order of their admission.
        self.asked: list[int] = []
        self.admitted: list[int] = []
        self.ended: list[int] = []
        self.canceled: list[int] = []
        self.jobs: list[Job] = []
        self.loop = Loop()
        self.queue = ConversionQueue(self.loop, self, bound)

    def submit(self, work: Callable[[], Any], on_done: Callable[[Any, Any], None]) -> None:
        """Start a call, for the queue. A call with a maximum admits its job."""
        if isinstance(work, partial):
            number, size = work.args
            self.admitted.append(number)
            self.held[number] = size
            in_use = [each for each in self.held.values() if each]
            assert sum(in_use) <= self._bound or in_use == [size]
            assert self.queue.held_bytes == sum(self.held.values())
        self._calls.append((work, on_done))

    def run_all(self, scripts: list[tuple[int, Script]]) -> None:
        for number, (lane, script) in enumerate(scripts):
            steps = self._steps(number, script)
            self.jobs.append(self.queue.submit(lane, steps, self.ended.append))
            self._end_calls(self._rng.randrange(2))
            self._maybe_cancel()
        # Each round ends at least one call or makes one step, if hold-and-wait is impossible.
        for _ in range(sum(len(script) + 1 for _, script in scripts) * 2):
            self.loop.turn()
            self._end_calls(1)
            self._maybe_cancel()

    def _maybe_cancel(self) -> None:
        number = self._rng.randrange(10 * len(self.jobs))
        if number >= len(self.jobs) or self.jobs[number].is_done:
            return
        if number not in self.canceled:
            self.canceled.append(number)
        if self.asked.count(number) > self.admitted.count(number):
            # It waits for memory, and does not wait any longer.
            del self.asked[len(self.asked) - 1 - self.asked[::-1].index(number)]
        self.jobs[number].cancel()

    def _end_calls(self, count: int) -> None:
        for _ in range(min(count, len(self._calls))):
            work, on_done = self._calls.pop(self._rng.randrange(len(self._calls)))
            on_done(work(), None)

    def _keep(self, number: int, needed: int, _result: object) -> int:
        self.held[number] = needed
        return needed

    def _actions(self, number: int, script: Script) -> Generator[OffLoop | None, Any, int]:
        for action in script:
            if action == STEP:
                yield None
            elif action == CALL:
                yield OffLoop(lambda: None)
            elif isinstance(action, tuple):
                self.held.pop(number, None)
                self.asked.append(number)
                most, needed = action
                yield OffLoop(
                    partial(lambda *_: None, number, most),
                    most,
                    partial(self._keep, number, needed),
                )
        return number

    def _steps(self, number: int, script: Script) -> Generator[OffLoop | None, Any, int]:
        try:
            return (yield from self._actions(number, script))
        finally:
            self.held.pop(number, None)


# Two batches at once whose content is decompressed and then compressed again.
@example(100, [(0, [(60, 60), CALL]), (1, [(60, 60), CALL])], 0)
@example(100, [(0, [(150, 100), CALL]), (1, [(150, 100), CALL]), (2, [(1, 1), (1, 0)])], 0)
@given(st.integers(1, 200), jobs, st.integers(0, 1 << 30))
def test_every_job_ends_within_the_memory(
    bound: int, scripts: list[tuple[int, Script]], seed: int
) -> None:
    seen = Jobs(bound, random.Random(seed))
    seen.run_all(scripts)
    assert all(job.is_done for job in seen.jobs)
    assert sorted(seen.ended + seen.canceled) == list(range(len(scripts)))
    assert (len(seen.queue), seen.queue.held_bytes) == (0, 0)
    # First come, first served: no job starves.
    assert seen.admitted == seen.asked
