"""Who steps the loop of a blocking client that has to be heard of between its user's calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.runtime.stepper import LoopStepper
from waiting import eventually


@pytest.fixture
def stepper() -> Iterator[LoopStepper]:
    """Of which a thread takes care, and no user is inside."""
    made = LoopStepper()
    assert made.enter()
    made.keep_alive()
    made.leave()
    yield made
    assert made.enter()
    made.close()
    made.leave()


def test_timers_run_while_the_user_is_away(stepper: LoopStepper) -> None:
    ran: list[bool] = []
    assert stepper.enter()
    stepper.runtime.timer.call_later(10, lambda: ran.append(True))
    stepper.leave()
    eventually(lambda: ran)


def test_timers_run_while_the_user_makes_calls_that_step_nothing(stepper: LoopStepper) -> None:
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
