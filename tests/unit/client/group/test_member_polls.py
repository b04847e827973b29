"""Steps of a membership inside `poll`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.client.group.membership import PollSteps

if TYPE_CHECKING:
    from barnabas.client.group.membership import OnHostDone


class Steps:
    """Steps that the test ends itself."""

    def __init__(self) -> None:
        self.wakes = 0
        self.results: list[BaseException | None] = []
        self.started: list[OnHostDone] = []
        self.steps = PollSteps(self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    def advance(self) -> bool:
        self.steps.start(self.started.append, self.results.append)
        return True


def test_a_step_that_waits_ends_the_run_and_wakes_the_poll_when_it_ends() -> None:
    case = Steps()
    case.steps.run(case.advance)
    assert case.steps.is_in_progress
    assert len(case.started) == 1
    case.steps.run(case.advance)
    assert len(case.started) == 1
    case.started[0](None)
    assert case.results == [None]
    assert case.wakes == 1
    assert not case.steps.is_in_progress


def test_inside_a_run_the_poll_is_not_woken() -> None:
    case = Steps()

    def advance() -> bool:
        case.steps.start(lambda on_done: on_done(None), case.results.append)
        return len(case.results) < 3

    case.steps.run(advance)
    assert case.results == [None, None, None]
    assert case.wakes == 0


def test_the_result_of_a_stopped_step_is_ignored() -> None:
    case = Steps()
    case.steps.run(case.advance)
    case.steps.stop()
    case.started[0](RuntimeError("late"))
    assert case.results == []
    assert case.wakes == 0


def test_a_second_step_is_refused() -> None:
    case = Steps()
    case.advance()
    with pytest.raises(AssertionError, match="in progress already"):
        case.advance()
