"""Plans: calls that wait, as steps without waiting, shared by blocking and asyncio clients.

A plan is a generator. It yields steps, receives the outcome of each, and returns its result. A
`PlanMethod` makes one plan a blocking method of the blocking clients and a coroutine method of the
asyncio clients. The clients differ only in how they perform a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import wraps
from types import MethodType
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar, overload

__all__ = [
    "AwaitsPlans",
    "PlanMethod",
    "RunsPlans",
    "Until",
    "WaitingPlan",
    "run_plan",
    "run_plan_async",
]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
# A plan whose steps are of any kind.
AnyPlan: TypeAlias = Generator[Any, Any, T]


class Until(NamedTuple):
    """A step that waits until `condition` holds, for at most `limit_ms`; its outcome is whether."""

    condition: Callable[[], bool]
    limit_ms: float


WaitingPlan: TypeAlias = Generator[Until, bool, T]


class RunsPlans(ABC):
    """Base of the blocking clients."""

    @abstractmethod
    def _run_plan(self, plan: Callable[..., AnyPlan[T]], *args: Any, **kwargs: Any) -> T:
        """Begin a call, run its plan with these arguments, and return the plan's result."""


class AwaitsPlans(ABC):
    """Base of the asyncio clients."""

    @abstractmethod
    async def _run_plan(self, plan: Callable[..., AnyPlan[T]], *args: Any, **kwargs: Any) -> T:
        """Begin a call, run its plan with these arguments, and return the plan's result."""


class PlanMethod(Generic[P, T]):
    """A method of both kinds of clients.

    Args:
        plan: Signature and docstring of the method. Instead of `self` it has what the plan needs
            of the client; `_run_plan` passes this.
    """

    def __init__(self, plan: Callable[Concatenate[Any, P], AnyPlan[T]]) -> None:
        # `help` shows the result of the method: T instead of "WaitingPlan[T]".
        returned: str = plan.__annotations__["return"]
        plan.__annotations__["return"] = returned[returned.index("[") + 1 : -1]

        @wraps(plan)
        def blocking(client: RunsPlans, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return client._run_plan(plan, *args, **kwargs)

        @wraps(plan)
        async def awaited(client: AwaitsPlans, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await client._run_plan(plan, *args, **kwargs)

        self._blocking = blocking
        self._awaited = awaited

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...

    @overload
    def __get__(self, client: RunsPlans, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: AwaitsPlans, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: RunsPlans | AwaitsPlans | None, owner: type) -> Callable[..., Any]:
        """Return the method of this kind of client, bound to the client if there is one."""
        method = self._awaited if issubclass(owner, AwaitsPlans) else self._blocking
        return method if client is None else MethodType(method, client)


def run_plan(plan: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """Run a plan to its end.

    Args:
        plan: the steps; an exception of the plan is raised here.
        perform: performs a step and returns its outcome; its exception ends the plan.

    Returns:
        The plan's result.
    """
    outcome: Any = None
    try:
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = perform(step)
    finally:
        plan.close()


async def run_plan_async(plan: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """Run a plan to its end, see `run_plan`."""
    outcome: Any = None
    try:
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = await perform(step)
    finally:
        plan.close()
