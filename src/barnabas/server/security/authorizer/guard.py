"""The authorizer of a node: checks the right that each request needs before its handler.

`served_apis` has the right that each API needs. This module is imported only if an authorizer is
configured.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import Message
from barnabas.server.dispatch.served_apis import CONTROLLER_APIS, controller_rights, served_apis
from barnabas.server.security.authorizer.authorizer import AuditLog, Authorizer, Rights
from barnabas.server.security.authorizer.checks import refusals
from barnabas.server.security.authorizer.checks.check import Partial

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from barnabas.metadata.acls import AclsImage
    from barnabas.metadata.image import ClusterImage
    from barnabas.runtime.clock import Clock
    from barnabas.server.configs.config import AuthorizerConfig
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.dispatch.served_apis import Right
    from barnabas.settings.definition import ParsedConfig

    # Makes the response to a request without the right, at once or in steps.
    Refusal = Callable[[Any, ErrorCode, str], Message | Generator[None, None, Message]]
    from barnabas.server.security.authorizer.checks.check import Check, Verdict


class UncheckedApiError(Exception):
    """The table of APIs has no right for a served API."""


class Guard:
    """The checks of one kind of listener."""

    __slots__ = ("_access_control", "_checks", "_needed")

    def __init__(
        self,
        access_control: NodeAuthorizer,
        needed: Mapping[int, Right],
    ) -> None:
        """Create the checks of one kind of listener.

        Args:
            access_control: returns the rights of each request's client.
            needed: the right that each API needs. A served API without a right is an error, because
                every client could use the API.
        """
        self._access_control = access_control
        self._needed = needed
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
            right = self._needed.get(api_key)
            if right is None:
                raise UncheckedApiError(f"API {api_key} has no right in the table of APIs")
            self._checks[api_key] = _check(api_key, right)
        return self._checks[api_key]


def load_check(api_key: int, right: Right) -> Check:
    """Return the check function of a right that names one."""
    module = importlib.import_module(f"{__package__}.checks.{right.module}")
    check: Check = getattr(module, right.function or f"check_{ApiKey(api_key).name.lower()}")
    return check


def _check(api_key: int, right: Right) -> Check | None:
    if right.module:
        return load_check(api_key, right)
    operation = right.operation
    refusal: Refusal = getattr(refusals, right.refusal or "refuse")
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
        return refusal(request, error, message)

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
    context.amend_with(verdict.amend)
    return handle(context, verdict.request)


class NodeAuthorizer:
    """Creates the rights of each request's client, and the checks of each kind of listener."""

    def __init__(
        self,
        authorizer_config: AuthorizerConfig,
        config: ParsedConfig,
        clock: Clock,
        find_image: Callable[[], ClusterImage],
        is_loaded: Callable[[], bool],
    ) -> None:
        """Create the authorizer of a node.

        Args:
            authorizer_config: super users and default.
            config: configuration of the node at its start.
            clock: limits the rate of log lines.
            find_image: returns the latest metadata.
            is_loaded: returns whether the metadata has been up to date once.
        """
        self._config = config
        self._find_image = find_image
        self._is_loaded = is_loaded
        self._authorizer = Authorizer(authorizer_config, self._loaded_acls)
        self._audit = AuditLog(clock)

    def of(self, context: RequestContext) -> Rights:
        """Return the rights of the client that sent a request."""
        return Rights(context, self._authorizer, self._audit, self._find_image(), self._config)

    def find_acls(self) -> AclsImage:
        """Return the current access control entries."""
        return self._find_image().acls

    def broker_guard(self) -> Guard:
        """Return the checks of requests on a broker's listeners."""
        apis = served_apis(has_telemetry=True)
        return Guard(self, {key: api.right for key, api in apis.items()})

    def controller_guard(self) -> Guard:
        """Return the checks of requests to the controller of this process."""
        return Guard(self, controller_rights())

    def listener_guard(self) -> Guard:
        """Return the checks of requests on a controller's listeners."""
        return Guard(self, {key: api.right for key, api in CONTROLLER_APIS.items()})

    def _loaded_acls(self) -> AclsImage | None:
        return self._find_image().acls if self._is_loaded() else None
