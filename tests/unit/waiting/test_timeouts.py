"""Timeouts of operations: one timer for each delay, and no early or missing expiry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.sim.world import SimWorld, sim_runtime
from barnabas.waiting.timing_wheel import Timeouts, TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable


class Operation:
    """An operation that records the time of its expiry."""

    def __init__(
        self, world: SimWorld, delay_ms: float, on_expired: Callable[[], None] = lambda: None
    ) -> None:
        self._world = world
        self._on_expired = on_expired
        self.delay_ms = delay_ms
        self.expired_ms: list[float] = []

    def expire(self) -> None:
        self.expired_ms.append(self._world.scheduler.now_ms)
        self._on_expired()


def timeouts_in_world() -> tuple[SimWorld, TimingWheel, Timeouts]:
    world, runtime = sim_runtime(1)
    wheel = TimingWheel(runtime.clock, runtime.timer)
    return world, wheel, Timeouts(wheel)


def test_operations_with_one_delay_share_a_timer_and_expire_in_order() -> None:
    world, wheel, timeouts = timeouts_in_world()
    operations = [Operation(world, 100) for _ in range(5)]
    for operation in operations:
        timeouts.add(operation)
        world.run_for(10)
    assert wheel.waiting_count == 1
    world.run_for(200)
    assert [each.expired_ms for each in operations] == [[100], [110], [120], [130], [140]]
    assert wheel.waiting_count == 0


def test_a_completed_operation_does_not_shorten_the_timeout_of_the_next_one() -> None:
    world, wheel, timeouts = timeouts_in_world()
    first, second = Operation(world, 100), Operation(world, 100)
    timeouts.add(first)
    timeouts.remove(first)
    world.run_for(60)
    timeouts.add(second)
    assert wheel.waiting_count == 1
    world.run_for(200)
    assert (first.expired_ms, second.expired_ms, wheel.waiting_count) == ([], [160], 0)


def test_a_shorter_delay_is_not_held_back_by_a_longer_one() -> None:
    world, _, timeouts = timeouts_in_world()
    long, short = Operation(world, 1_000), Operation(world, 10)
    timeouts.add(long)
    timeouts.add(short)
    world.run_for(2_000)
    assert (long.expired_ms, short.expired_ms) == ([1_000], [10])


def test_completed_operations_with_many_delays_leave_few_timers() -> None:
    world, wheel, timeouts = timeouts_in_world()
    for delay_ms in range(1_000, 2_000):
        operation = Operation(world, delay_ms)
        timeouts.add(operation)
        timeouts.remove(operation)
    assert wheel.waiting_count <= 16
    world.run_for(2_000)
    assert wheel.waiting_count == 0


def test_an_error_of_one_operation_does_not_keep_others_from_expiring() -> None:
    world, _, timeouts = timeouts_in_world()

    def fail() -> None:
        raise RuntimeError("not foreseen")

    operations = [Operation(world, 10, fail), Operation(world, 10)]
    for operation in operations:
        timeouts.add(operation)
    with pytest.raises(RuntimeError):
        world.run_for(100)
    world.run_for(100)
    assert [len(each.expired_ms) for each in operations] == [1, 1]


def test_an_operation_that_is_added_by_an_expiry_gets_its_whole_delay() -> None:
    world, wheel, timeouts = timeouts_in_world()
    second = Operation(world, 10)
    timeouts.add(Operation(world, 10, lambda: timeouts.add(second)))
    world.run_for(100)
    assert (second.expired_ms, wheel.waiting_count) == ([20], 0)


def test_closed_timeouts_have_no_timer() -> None:
    world, wheel, timeouts = timeouts_in_world()
    operation = Operation(world, 10)
    timeouts.add(operation)
    timeouts.close()
    assert wheel.waiting_count == 0
    world.run_for(100)
    assert operation.expired_ms == []
