"""Delayed operations: tried, watched, tried again, and completed once."""

from __future__ import annotations

from barnabas.sim.world import SimWorld, sim_runtime
from barnabas.waiting.purgatory import DelayedOperation, Purgatory
from barnabas.waiting.timing_wheel import TimingWheel


class Operation(DelayedOperation):
    """An operation that completes when `ready` is set, and counts its completions."""

    def __init__(self, delay_ms: float = 100, ready_after_tries: int = 1_000_000) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.tries = 0
        self.ready_after_tries = ready_after_tries
        self.completed = 0
        self.expired = 0

    def try_complete(self) -> bool:
        self.tries += 1
        if self.ready or self.tries > self.ready_after_tries:
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        self.completed += 1

    def on_expiration(self) -> None:
        self.expired += 1


def purgatory_in_world() -> tuple[SimWorld, TimingWheel, Purgatory]:
    world, runtime = sim_runtime(1)
    wheel = TimingWheel(runtime.clock, runtime.timer)
    return world, wheel, Purgatory("test", wheel)


def test_an_operation_that_is_complete_at_once_is_never_watched() -> None:
    _, wheel, purgatory = purgatory_in_world()
    operation = Operation(ready_after_tries=0)
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert (operation.completed, purgatory.watched(), wheel.waiting_count) == (1, 0, 0)


def test_an_operation_is_checked_again_after_it_is_watched() -> None:
    _, wheel, purgatory = purgatory_in_world()
    operation = Operation(ready_after_tries=1)
    assert purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert (operation.completed, purgatory.watched(), wheel.waiting_count) == (1, 0, 0)


def test_a_canceled_operation_leaves_all_keys_and_is_never_completed() -> None:
    world, wheel, purgatory = purgatory_in_world()
    operation = Operation()
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert operation.cancel()
    assert (purgatory.watched(), purgatory.delayed) == (0, 0)
    operation.ready = True
    purgatory.check_and_complete("a")
    world.run_for(1_000)
    assert wheel.waiting_count == 0
    assert not operation.cancel()
    assert not operation.force_complete()
    assert (operation.completed, operation.expired) == (0, 0)


def test_a_check_of_any_key_completes_and_leaves_all_keys() -> None:
    world, wheel, purgatory = purgatory_in_world()
    operation = Operation()
    assert not purgatory.try_complete_else_watch(operation, ["a", "b", "a"])
    assert (purgatory.watched(), purgatory.delayed) == (2, 1)
    assert purgatory.check_and_complete("b") == 0
    operation.ready = True
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.check_and_complete("a") == 0
    assert (purgatory.watched(), purgatory.delayed) == (0, 0)
    world.run_for(1_000)
    assert (operation.completed, operation.expired, wheel.waiting_count) == (1, 0, 0)


def test_an_error_of_one_operation_does_not_prevent_the_completion_of_others(caplog) -> None:
    """The error does not reach the caller either, which made another request."""
    _, _, purgatory = purgatory_in_world()

    class Raising(Operation):
        def on_complete(self) -> None:
            raise RuntimeError("not foreseen")

    operations = [Operation(), Raising(), Operation()]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.ready = True
    assert purgatory.check_and_complete("a") == 2
    assert [each.completed for each in operations] == [1, 0, 1]
    assert (purgatory.watched(), purgatory.delayed) == (0, 0)
    assert "RuntimeError: not foreseen" in caplog.text


def test_a_timeout_completes_an_operation_and_is_counted() -> None:
    world, _, purgatory = purgatory_in_world()
    operation = Operation(delay_ms=50)
    purgatory.try_complete_else_watch(operation, ["a"])
    world.run_for(49)
    assert operation.completed == 0
    world.run_for(2)
    assert (operation.completed, operation.expired, purgatory.watched()) == (1, 1, 0)


def test_an_operation_completes_only_once() -> None:
    world, _, purgatory = purgatory_in_world()
    operation = Operation(delay_ms=50)
    purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.force_complete()
    assert not operation.force_complete()
    world.run_for(100)
    assert (operation.completed, operation.expired) == (1, 0)


def test_the_completion_of_an_operation_may_check_its_key_again() -> None:
    _, _, purgatory = purgatory_in_world()
    second = Operation()

    class First(Operation):
        def on_complete(self) -> None:
            super().on_complete()
            second.ready = True
            purgatory.check_and_complete("a")

    first = First()
    purgatory.try_complete_else_watch(first, ["a"])
    purgatory.try_complete_else_watch(second, ["a"])
    first.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert (first.completed, second.completed, purgatory.watched()) == (1, 1, 0)


def test_after_shutdown_no_operation_waits() -> None:
    world, wheel, purgatory = purgatory_in_world()
    operation = Operation()
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    purgatory.shutdown()
    assert not purgatory.try_complete_else_watch(Operation(), ["a"])
    world.run_for(1000)
    assert (operation.completed, purgatory.watched(), wheel.waiting_count) == (0, 0, 0)


def test_the_oldest_operations_are_completed_above_the_watch_limit() -> None:
    _, runtime = sim_runtime(1)
    wheel = TimingWheel(runtime.clock, runtime.timer)
    purgatory = Purgatory("test", wheel, watched_max=100)
    operations = [Operation(1e9) for _ in range(30)]
    for number, operation in enumerate(operations):
        keys = [f"{number}-{key}" for key in range(6)]
        if number % 2:
            purgatory.watch(operation, keys)
        else:
            purgatory.try_complete_else_watch(operation, keys)
    assert [each.completed for each in operations] == [1] * 20 + [0] * 10
    assert (purgatory.delayed, purgatory.watched(), wheel.waiting_count) == (10, 60, 1)


def test_an_operation_that_exceeds_the_watch_limit_is_completed_at_once() -> None:
    _, runtime = sim_runtime(1)
    purgatory = Purgatory("test", TimingWheel(runtime.clock, runtime.timer), watched_max=100)
    operation = Operation(1e9)
    assert purgatory.try_complete_else_watch(operation, range(200))
    assert (operation.completed, purgatory.delayed, purgatory.watched()) == (1, 0, 0)
