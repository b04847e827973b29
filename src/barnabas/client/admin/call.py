"""An admin call as data: how to build the request and how to read the response."""

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
# Kafka calls these errors retriable; but if the call names the resource, the error is final.
FINAL_ERRORS = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class AdminCall(Generic[T_co]):
    """A function that builds a request and one that reads its response, both without I/O."""

    api_key: ApiKey
    # Builds the request for the negotiated version.
    build: Callable[[int], Message]
    # Converts the response; raises BrokerError if the whole call failed.
    read: Callable[[Message], T_co]
    # An additional upper limit of the API version.
    max_version: int | None = None


def raise_error(code: int, subject: str, detail: str | None = None) -> None:
    """Raise the broker's error unless the code is 0."""
    if code:
        raise broker_error(code, subject, detail)


def errors_by_name(
    kind: str, results: Iterable[tuple[K, int, str | None]]
) -> dict[K, BrokerError | None]:
    """Return the error or None for each name.

    Raises:
        BrokerError: a result has a retriable error such as NOT_CONTROLLER; the call is repeated.
    """
    found: dict[K, BrokerError | None] = {}
    for name, code, detail in results:
        error = broker_error(code, f"{kind} {name}", detail) if code else None
        if error is not None and error.retriable and error.error_code not in FINAL_ERRORS:
            raise error
        found[name] = error
    return found
