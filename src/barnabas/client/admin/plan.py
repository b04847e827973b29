"""Admin calls as plans: steps without waiting, shared by the blocking and the asyncio API.

A plan is a generator. It yields either a set of calls to make in parallel and receives their
outcomes, or a pause. Its return value is the result. The APIs differ only in how they run plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from barnabas.client.session.waiter import run_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from barnabas.client.retries import OnDone
    from barnabas.client.session.waiter import Waiter

__all__ = ["Pause", "Plan", "Step", "names_of", "run"]

T = TypeVar("T")


class Pause(NamedTuple):
    """A step of a plan that waits before the next step; `delay_ms` in ms."""

    delay_ms: float


# Start functions by key; the plan receives the result or the ClientError of each.
Starts: TypeAlias = "Mapping[Any, Callable[[OnDone[Any]], None]]"
Step: TypeAlias = "Starts | Pause"
Plan: TypeAlias = "Generator[Step, Any, T]"


def names_of(given: Iterable[str]) -> list[str]:
    """Return names as a list; a single string counts as one name."""
    return [given] if isinstance(given, str) else list(given)


def run(plan: Plan[T], waiter: Waiter) -> T:
    """Run a plan and wait for each of its steps.

    Returns:
        The plan's result.

    Raises:
        ClientError: the plan failed.
    """

    def perform(step: Step) -> Any:
        if isinstance(step, Pause):
            waiter.pause(step.delay_ms)
            return None
        return waiter.wait_all(step)

    return run_plan(plan, perform)
