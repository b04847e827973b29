"""Admin calls as data, the plans that make them, and errors of their results.

An `AdminCall` says how to build the request and how to read the response.

A plan has steps without waiting, so that the blocking and the asyncio API share it. It is a
generator. It yields either a set of calls to make in parallel and receives their outcomes, or a
pause. Its return value is the result. The APIs differ only in how they run plans.

Callers easily ignore a result that contains errors. A call that changes something therefore raises
when any part has failed, after all parts are complete; the error holds all results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from barnabas.client.errors import AdminResultsError, BrokerError, ClientError, broker_error
from barnabas.client.session.plans import run_plan
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from barnabas.client.retries import OnDone
    from barnabas.client.session.waiter import Waiter
    from barnabas.protocol.api_keys import ApiKey
    from barnabas.protocol.schema import Message

__all__ = [
    "AdminCall",
    "Pause",
    "Plan",
    "Step",
    "checked",
    "error_or_none",
    "errors_by_name",
    "errors_of",
    "names_of",
    "raise_error",
    "raise_failed",
    "require_success",
    "run",
]

K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)
# Kafka calls these errors retriable; but if the call names the resource, the error is final.
FINAL_ERRORS = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
V = TypeVar("V")
# Errors that mean the requested state already existed.
_NO_FAILURE = frozenset({ErrorCode.ELECTION_NOT_NEEDED})
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdminCall(Generic[T_co]):
    """A function that builds a request and one that reads its response, both without I/O."""

    api_key: ApiKey
    # Builds the request for the negotiated version.
    build: Callable[[int], Message]
    # Converts the response; raises BrokerError if the whole call failed.
    read: Callable[[Any], T_co]
    # An additional upper limit of the API version.
    max_version: int | None = None


def raise_error(code: int, subject: str, detail: str | None = None) -> None:
    """Raise the broker's error unless the code is 0."""
    if code:
        raise broker_error(code, subject, detail)


def error_or_none(code: int, subject: str, detail: str | None = None) -> BrokerError | None:
    """Return the broker's error; None if the code is 0."""
    return broker_error(code, subject, detail) if code else None


def errors_by_name(
    kind: str, results: Iterable[tuple[K, int, str | None]]
) -> dict[K, BrokerError | None]:
    """Return the error or None for each name.

    Raises:
        BrokerError: a result has a retriable error such as NOT_CONTROLLER; the call is repeated.
    """
    found: dict[K, BrokerError | None] = {}
    for name, code, detail in results:
        error = error_or_none(code, f"{kind} {name}", detail)
        if error is not None and error.retriable and error.error_code not in FINAL_ERRORS:
            raise error
        found[name] = error
    return found


def require_success(subject: str) -> Callable[[Any], bool]:
    """Return the `read` of a call whose response only has an error code and a message."""

    def read(response: Any) -> bool:
        raise_error(response.error_code, subject, response.error_message)
        return True

    return read


def raise_failed(results: Mapping[Any, object]) -> None:
    """Raise an error if one of the results is an error.

    Raises:
        AdminResultsError: holds all results.
    """
    if any(
        isinstance(result, ClientError) and result.error_code not in _NO_FAILURE
        for result in results.values()
    ):
        raise AdminResultsError(results)


def checked(plan: Plan[dict[K, V]], *, raise_errors: bool) -> Plan[dict[K, V]]:
    """Run a plan; with `raise_errors`, raise if one of its results is an error.

    Raises:
        AdminResultsError: one of the results is an error.
    """
    results = yield from plan
    if raise_errors:
        raise_failed(results)
    return results


def errors_of(results: Mapping[K, V | BrokerError]) -> dict[K, BrokerError | None]:
    """Return the error of each result, or None for a value."""
    return {key: each if isinstance(each, BrokerError) else None for key, each in results.items()}


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
