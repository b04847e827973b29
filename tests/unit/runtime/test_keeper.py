"""The thread that steps the loop of a blocking client between calls of the user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.runtime.stepper import LoopStepper
from waiting import eventually


@pytest.fixture
def stepper() -> Iterator[LoopStepper]:
    """A stepper with a keeper thread, and no user call in progress."""
    made = LoopStepper()
    assert made.enter()
    made.keep_alive()
    made.leave()
    yield made
    assert made.enter()
    made.close()
    made.leave()


def test_timers_run_between_calls_of_the_user(stepper: LoopStepper) -> None:
    ran: list[bool] = []
    assert stepper.enter()
    stepper.runtime.timer.call_later(10, lambda: ran.append(True))
    stepper.leave()
    eventually(lambda: ran)


def test_timers_run_during_calls_that_do_not_step_the_loop(stepper: LoopStepper) -> None:
    ran: list[bool] = []
    assert stepper.enter()
    for number in range(20):
        stepper.runtime.timer.call_later(50 * number, lambda: ran.append(True))
    stepper.leave()

    def calls() -> bool:
        for _ in range(1_000):
            assert stepper.enter()
            stepper.leave()
        return len(ran) == 20

    eventually(calls)
