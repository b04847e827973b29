"""Runs plans, which the blocking and the asyncio clients share.

A plan is a generator. It yields steps, receives the outcome of each, and returns its result. The
clients differ only in how they perform a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

__all__ = ["run_plan", "run_plan_async"]

S = TypeVar("S")
T = TypeVar("T")


def run_plan(plan: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """Run a plan to its end.

    Args:
        plan: the steps; an exception of the plan is raised here.
        perform: performs a step and returns its outcome.

    Returns:
        The plan's result.
    """
    outcome: Any = None
    while True:
        try:
            step = plan.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        outcome = perform(step)


async def run_plan_async(plan: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """Run a plan to its end, see `run_plan`."""
    outcome: Any = None
    while True:
        try:
            step = plan.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        outcome = await perform(step)
