"""One admin call as data: how to build its request, and what its answer means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.client.errors import BrokerError, broker_error
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.protocol.api_keys import ApiKey
    from barnabas.protocol.schema import Message

__all__ = ["AdminCall", "errors_by_name", "raise_error"]

K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)
# Retriable by Kafka's table, yet for who names a resource it is an answer, not a passing state.
LASTING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class AdminCall(Generic[T_co]):
    """A request and the reading of its answer; neither does any I/O."""

    api_key: ApiKey
    # Makes the request for the version settled on.
    build: Callable[[int], Message]
    # The answer's meaning; raises BrokerError if the call as a whole failed.
    read: Callable[[Message], T_co]


def raise_error(code: int, subject: str, detail: str | None = None) -> None:
    """Raise what a broker answered, unless it is 0."""
    if code:
        raise broker_error(code, subject, detail)


def errors_by_name(
    what: str, results: Iterable[tuple[K, int, str | None]]
) -> dict[K, BrokerError | None]:
    """Errors by name, or by what else was meant.

    Raises:
        BrokerError: NOT_CONTROLLER and the like for one: an error of the whole call.
    """
    found: dict[K, BrokerError | None] = {}
    for name, code, detail in results:
        error = broker_error(code, f"{what} {name}", detail) if code else None
        if error is not None and error.retriable and error.error_code not in LASTING:
            raise error
        found[name] = error
    return found
