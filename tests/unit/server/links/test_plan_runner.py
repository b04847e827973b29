"""Plans of a link end whatever their calls do, so that the next round can begin."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from barnabas.client.errors import ClientError
from barnabas.server.links.plan_runner import start_plan
from barnabas.sim.world import sim_runtime

Ended = list[tuple[Any, ClientError | None]]


def calling(*calls: Callable[..., None]) -> Generator[Any, Any, Any]:
    """Make calls in parallel, and return their outcomes."""
    return (yield dict(enumerate(calls)))


def started(*calls: Callable[..., None]) -> Ended:
    _, runtime = sim_runtime(1)
    ended: Ended = []
    start_plan(calling(*calls), runtime.timer, lambda *outcome: ended.append(outcome))
    return ended


def faulty(_on_done: object) -> None:
    raise OSError("no free file descriptor")


def test_a_call_that_cannot_be_started_has_an_error() -> None:
    ((outcomes, error),) = started(faulty, lambda on_done: on_done(7, None))
    assert error is None
    assert isinstance(outcomes[0], ClientError)
    assert "no free file descriptor" in str(outcomes[0])
    assert outcomes[1] == 7


def test_a_call_that_fails_after_its_outcome_keeps_the_outcome() -> None:
    def late(on_done: Callable[..., None]) -> None:
        on_done(7, None)
        raise OSError("too late")

    assert started(late) == [({0: 7}, None)]


def test_a_plan_that_raises_ends_with_an_error() -> None:
    def plan() -> Generator[Any, Any, None]:
        yield {"call": lambda on_done: on_done(7, None)}
        raise KeyError("topic")

    _, runtime = sim_runtime(1)
    ended: Ended = []
    start_plan(plan(), runtime.timer, lambda *outcome: ended.append(outcome))
    ((result, error),) = ended
    assert result is None
    assert "KeyError('topic')" in str(error)
