"""Calls the checks of the table before the handlers of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import Message
from barnabas.server.dispatch.amended_context import AmendedContext
from barnabas.server.security.authorizer.checks.check import Partial
from barnabas.server.security.authorizer.checks.refusals import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.security.authorizer.checks.check import Check, Verdict
    from barnabas.server.security.authorizer.checks.table import Row
    from barnabas.server.security.authorizer.rights import Rights


class RightsOf(Protocol):
    """Source of the rights of the client that sent a request."""

    def of(self, context: RequestContext) -> Rights:
        """Return the rights."""
        ...


class UncheckedApiError(Exception):
    """The table has no row for a served API."""


class Guard:
    """The checks of one kind of listener."""

    __slots__ = ("_access_control", "_checks", "_rows")

    def __init__(
        self,
        access_control: RightsOf,
        rows: Mapping[int, Row],
        elsewhere: Collection[int] = (),
    ) -> None:
        """Args:
        access_control: returns the rights of each request's client.
        rows: checks by API key.
        elsewhere: APIs that another guard checks, if `rows` does not have them.
        """
        self._access_control = access_control
        # A served API without a row is an error, because every client could use the API.
        self._rows: dict[int, Row | None] = {**dict.fromkeys(elsewhere, None), **rows}
        self._checks: dict[int, Check | None] = {}

    def wrap(self, api_key: int, handle: Handle) -> Handle:
        """Return a handler that calls `handle` for allowed requests only.

        Raises:
            UncheckedApiError: the API has no row.
        """
        check = self._check_of(api_key)
        if check is None:
            return handle
        access_control = self._access_control

        def handle_guarded(context: RequestContext, request: Any) -> Message | None:
            verdict = check(access_control.of(context), request)
            if verdict is None:
                return handle(context, request)
            if isinstance(verdict, Message | Partial):
                return _serve(context, request, verdict, handle)
            return context.after(verdict, lambda result: _serve(context, request, result, handle))

        return handle_guarded

    def serve(
        self,
        context: RequestContext,
        request: Any,
        send: Callable[[Any, Callable[[Any], None]], None],
        on_done: Callable[[Any], None],
    ) -> None:
        """Check a request of a client before it is sent to the controller of this process.

        Args:
            context: the context of the client's request.
            request: the request.
            send: serves a request and calls its second argument with the response.
            on_done: called once with the response.
        """
        check = self._check_of(request.__api_key__)
        verdict = None if check is None else check(self._access_control.of(context), request)

        def continue_with(result: Verdict) -> None:
            if result is None:
                send(request, on_done)
            elif isinstance(result, Message):
                on_done(result)
            else:
                send(result.request, lambda response: on_done(result.amend(response)))

        if verdict is None or isinstance(verdict, Message | Partial):
            continue_with(verdict)
        else:
            context.after(verdict, continue_with)

    def _check_of(self, api_key: int) -> Check | None:
        """Return the check of an API; None if it needs no rights, or its handler checks them."""
        if api_key not in self._checks:
            if api_key not in self._rows:
                raise UncheckedApiError(f"API {api_key} has no row in the table of checks")
            row = self._rows[api_key]
            self._checks[api_key] = None if row is None else _check(row)
        return self._checks[api_key]


def _check(row: Row) -> Check | None:
    if row.function:
        return row.load()
    operation = row.operation
    if operation is None:
        return None
    number, message = int(operation), f"The request needs {operation.name} on the cluster."

    def check_cluster(rights: Rights, request: Any) -> Verdict | Generator[None, None, Verdict]:
        if rights.allows_on_cluster(number):
            return None
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if not rights.is_loaded:
            # Another controller retries after this error. An authorization error would stop it.
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        return refuse(request, error, message)

    return check_cluster


def _serve(
    context: RequestContext, request: Any, verdict: Verdict, handle: Handle
) -> Message | None:
    """Serve the allowed part of a request."""
    if verdict is None:
        return handle(context, request)
    if isinstance(verdict, Message):
        return verdict
    assert isinstance(verdict, Partial), (
        f"NothingUnauthorized: request={type(request).__name__} verdict={verdict!r}"
    )
    amended = AmendedContext(context, verdict.amend)
    response = handle(amended, verdict.request)
    return None if response is None else amended.amended(response)
