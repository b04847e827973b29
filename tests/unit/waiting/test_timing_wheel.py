"""The timing wheel in virtual time."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from barnabas.sim.world import sim_runtime
from barnabas.waiting.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from barnabas.sim.world import SimWorld
    from barnabas.waiting.timing_wheel import WheelEntry


def wheel_in_world() -> tuple[SimWorld, TimingWheel]:
    world, runtime = sim_runtime(1)
    return world, TimingWheel(runtime.clock, runtime.timer)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200_000), st.booleans()), max_size=60))
def test_every_entry_fires_once_in_order_and_at_its_time(
    plan: list[tuple[int, int, bool]],
) -> None:
    world, wheel = wheel_in_world()
    fired: list[tuple[float, float]] = []
    expected = 0
    for pause, delay, cancelled in plan:
        world.run_for(pause)
        due = world.scheduler.now_ms + delay
        entry = wheel.add(delay, lambda due=due: fired.append((due, world.scheduler.now_ms)))
        if cancelled:
            assert entry.cancel()
            assert not entry.cancel()
        else:
            expected += 1
    world.run_for(200_001)
    assert len(fired) == expected
    assert all(due <= at <= due + 1 for due, at in fired)
    assert [at for _, at in fired] == sorted(at for _, at in fired)
    assert wheel.waiting_count == 0


def test_an_entry_may_cancel_another_entry_of_the_same_time() -> None:
    world, wheel = wheel_in_world()
    fired: list[str] = []
    wheel.add(5, lambda: (fired.append("first"), second.cancel()))
    second = wheel.add(5, lambda: fired.append("second"))
    world.run_for(10)
    assert fired == ["first"]


def test_an_entry_added_while_firing_waits_for_its_own_time() -> None:
    world, wheel = wheel_in_world()
    fired: list[float] = []
    wheel.add(5, lambda: wheel.add(0, lambda: fired.append(world.scheduler.now_ms)))
    world.run_for(10)
    assert fired == [6.0]


@pytest.mark.parametrize("start_ms", [number / 97 for number in range(1, 97)])
def test_an_entry_without_delay_that_is_added_while_firing_waits_for_the_next_tick(
    start_ms: float,
) -> None:
    # The times of ticks are rounded, here to just above or below the start plus whole numbers.
    world, runtime = sim_runtime(1)
    world.run_for(start_ms)
    wheel = TimingWheel(runtime.clock, runtime.timer)
    fired: list[float] = []

    def fire() -> None:
        fired.append(world.scheduler.now_ms)
        if len(fired) < 50:
            wheel.add(0.0, fire)

    wheel.add(3.0, fire)
    world.run_for(100)
    assert len(fired) == 50
    assert all(later - earlier > 0.5 for earlier, later in pairwise(fired))


def test_an_error_of_one_entry_does_not_affect_others() -> None:
    world, wheel = wheel_in_world()
    fired: list[str] = []
    wheel.add(5, lambda: 1 // 0)
    wheel.add(5, lambda: fired.append("second"))
    with pytest.raises(ZeroDivisionError):
        world.run_for(10)
    world.run_for(10)
    assert fired == ["second"]


def test_the_loop_wakes_only_for_non_empty_buckets() -> None:
    world, wheel = wheel_in_world()
    wheel.add(100_000, lambda: None)
    for _ in range(1000):
        wheel.add(5000, lambda: None).cancel()
    world.run_for(100_001)
    assert world.scheduler.events_run < 10


def test_nothing_fires_after_close() -> None:
    world, wheel = wheel_in_world()
    wheel.add(5, lambda: pytest.fail("fired"))
    wheel.close()
    world.run_for(10)
    assert wheel.waiting_count == 0


@pytest.mark.parametrize("is_canceled", [True, False])
def test_a_finished_entry_releases_its_callback(is_canceled: bool) -> None:
    """A callback often references its entry: only garbage collection would free both."""

    class Delay:
        entry: WheelEntry

        def on_due(self) -> None:
            pass

    world, wheel = wheel_in_world()
    delay = Delay()
    delay.entry = wheel.add(50, delay.on_due)
    watched = weakref.ref(delay)
    if is_canceled:
        delay.entry.cancel()
    world.run_for(100)
    gc.collect()
    gc.disable()
    try:
        del delay
        assert watched() is None
    finally:
        gc.enable()
