"""Timers whose operation raises: they run again after a backoff, are counted and logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.shard import RETRY_MS, RETRY_MS_MAX, ShardTimers
from barnabas.sim.world import SimWorld
from barnabas.waiting.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

KEY = "key"


class Bench:
    """Timers whose operations fail a number of times, or always (-1)."""

    def __init__(self, failures: int = 0) -> None:
        self.world = SimWorld(1)
        runtime = self.world.host("broker").runtime
        self.clock = runtime.clock
        self.left = failures
        self.ran_ms: list[float] = []
        self.failed: list[Hashable] = []
        self.timers = ShardTimers(
            TimingWheel(runtime.clock, runtime.timer), runtime.clock, self.run, self.failed.append
        )

    def run(self, operation: Callable[[], CoordinatorResult[None]]) -> None:
        self.ran_ms.append(self.clock.monotonic_ms())
        if self.left:
            self.left -= 1
            raise MemoryError
        operation()

    def gaps(self) -> list[float]:
        """Return the times between the runs, in whole units of the backoff."""
        return [
            round((after - before) / RETRY_MS)
            for before, after in zip(self.ran_ms, self.ran_ms[1:], strict=False)
        ]


def nothing() -> CoordinatorResult[None]:
    return CoordinatorResult(None)


def test_a_failed_operation_runs_again_with_an_exponential_backoff() -> None:
    bench = Bench(failures=10)
    bench.timers.schedule(KEY, 10, nothing)
    bench.world.run_for(20 * RETRY_MS_MAX)
    longest = RETRY_MS_MAX // RETRY_MS
    assert bench.gaps() == [1, 2, 4, 8, 16, 32, 64, longest, longest, longest]
    assert bench.failed == [KEY] * 10
    assert not bench.timers.is_scheduled(KEY)


def test_the_backoff_begins_anew_after_a_success() -> None:
    bench = Bench(failures=3)
    bench.timers.schedule(KEY, 10, nothing)
    bench.world.run_for(20 * RETRY_MS)
    bench.left = 1
    bench.timers.schedule(KEY, 10, nothing)
    bench.world.run_for(20 * RETRY_MS)
    assert bench.gaps()[-1] == 1


def test_an_operation_that_scheduled_its_next_run_waits_for_the_backoff() -> None:
    bench = Bench()

    def again() -> CoordinatorResult[None]:
        bench.timers.schedule(KEY, 0, again)
        raise MemoryError

    bench.timers.schedule(KEY, 0, again)
    bench.world.run_for(8 * RETRY_MS)
    assert bench.gaps() == [1, 2, 4]


def test_the_next_run_of_a_periodic_operation_is_not_earlier_after_a_failure() -> None:
    bench = Bench()

    def again() -> CoordinatorResult[None]:
        bench.timers.schedule(KEY, 10 * RETRY_MS, again)
        raise MemoryError

    bench.timers.schedule(KEY, 0, again)
    bench.world.run_for(35 * RETRY_MS)
    assert bench.gaps() == [10, 10, 10]


def test_a_failed_operation_can_be_canceled_and_replaced() -> None:
    bench = Bench(failures=1)
    other: list[str] = []

    def note() -> CoordinatorResult[None]:
        other.append("ran")
        return nothing()

    for key in ("canceled", "replaced"):
        bench.left = 1
        bench.timers.schedule(key, 0, nothing)
        bench.world.run_for(5)
    bench.timers.cancel("canceled")
    bench.timers.schedule("replaced", 10, note)
    bench.world.run_for(20 * RETRY_MS)
    assert (len(bench.ran_ms), other) == (3, ["ran"])


def test_no_operation_runs_after_the_end_of_the_leadership() -> None:
    bench = Bench(failures=-1)
    bench.timers.schedule(KEY, 0, nothing)
    bench.world.run_for(5)
    bench.timers.close()
    bench.world.run_for(20 * RETRY_MS)
    assert len(bench.ran_ms) == 1


def test_a_broken_invariant_is_not_retried() -> None:
    bench = Bench()

    def broken() -> CoordinatorResult[None]:
        raise AssertionError("broken")

    bench.timers.schedule(KEY, 0, broken)
    with pytest.raises(AssertionError, match="broken"):
        bench.world.run_for(5)
    assert not bench.failed
