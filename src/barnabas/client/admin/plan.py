"""What an admin call does, step by step, without the waiting: one text under both faces.

A plan is a generator. It yields calls to be made at once and gets their outcomes, or a pause; what
it returns is the result. The blocking face and the asyncio face differ only in how they run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from barnabas.client.retrying import OnDone
    from barnabas.client.waiter import Waiter

__all__ = ["Pause", "Plan", "Step", "names_of", "run"]

T = TypeVar("T")


class Pause(NamedTuple):
    """Let time pass before the next step."""

    delay_ms: float


# Calls by what they are for; the plan gets each one's result or ClientError.
Starts: TypeAlias = "Mapping[Any, Callable[[OnDone[Any]], None]]"
Step: TypeAlias = "Starts | Pause"
Plan: TypeAlias = "Generator[Step, Any, T]"


def names_of(given: Iterable[str]) -> list[str]:
    """Return names as users give them; a single one is not taken for its letters."""
    return [given] if isinstance(given, str) else list(given)


def run(plan: Plan[T], waiter: Waiter) -> T:
    """Run a plan to its end, waiting for each step.

    Raises:
        ClientError: what the plan ended with.
    """
    outcomes: Any = None
    while True:
        try:
            step = plan.send(outcomes)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, Pause):
            waiter.pause(step.delay_ms)
            outcomes = None
        else:
            outcomes = waiter.wait_all(step)
