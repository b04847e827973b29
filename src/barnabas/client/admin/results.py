"""Results of calls over many things: a failure of one of them is raised, unless told otherwise.

A result that only says what failed is easily thrown away by its caller. So a call that changes
something raises if any part of it failed, after all parts were done; the error has all results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.errors import AdminResultsError, ClientError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.admin.plan import Plan

__all__ = ["checked", "raise_failed"]

K = TypeVar("K")
V = TypeVar("V")
# Errors that say that things are already as they were to be made.
_NO_FAILURE = frozenset({ErrorCode.ELECTION_NOT_NEEDED})


def raise_failed(results: Mapping[Any, object]) -> None:
    """Raise if one of the results is an error.

    Raises:
        AdminResultsError: with all results.
    """
    if any(
        isinstance(result, ClientError) and result.error_code not in _NO_FAILURE
        for result in results.values()
    ):
        raise AdminResultsError(results)


def checked(plan: Plan[dict[K, V]], *, raise_errors: bool) -> Plan[dict[K, V]]:
    """Run a plan to its results, and raise if one of them is an error and that is wanted.

    Raises:
        AdminResultsError: one of the results is an error.
    """
    results = yield from plan
    if raise_errors:
        raise_failed(results)
    return results
