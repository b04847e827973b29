"""Raises an error if a part of an admin call failed, unless the caller disables it.

Callers easily ignore a result that contains errors. A call that changes something therefore raises
when any part has failed, after all parts are complete; the error holds all results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.errors import AdminResultsError, BrokerError, ClientError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.admin.plan import Plan

__all__ = ["checked", "errors_of", "raise_failed"]

K = TypeVar("K")
V = TypeVar("V")
# Errors that mean the requested state already existed.
_NO_FAILURE = frozenset({ErrorCode.ELECTION_NOT_NEEDED})


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
