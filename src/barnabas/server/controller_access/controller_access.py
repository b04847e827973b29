"""Requests to the active controller: the interface, and calls of a controller in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from barnabas.controller.apis import API_CONTROLS
from barnabas.network.principal import ANONYMOUS
from barnabas.protocol.api_keys import api_row
from barnabas.protocol.api_table import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.controller.controller import Controller
    from barnabas.controller.result import MutationLimit
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.security.authorizer.guard import Guard


class QuorumApi(Protocol):
    """Serves Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot and voter changes."""

    def serve(
        self,
        request: Message,
        version: int,
        on_done: Callable[[Message], None],
        listener_name: str | None = None,
    ) -> None:
        """Serve a request of this version. `on_done` is called once, perhaps immediately.

        The response has the leader's address on the listener; None for the one of this replica.
        """
        ...


class ControllerAccess(Protocol):
    """Sends requests to the active controller, in this process or on another node."""

    def send(
        self,
        request: Message,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None = None,
        client_context: RequestContext | None = None,
    ) -> None:
        """Send `request` to the active controller.

        Args:
            request: the request to serve.
            on_done: called once with the response, after its changes are committed or after a
                timeout. The call may happen before this method returns.
            mutations: remaining mutation quota of the client, for APIs that count mutations.
            client_context: context of the client's request; None for requests of this node.
        """
        ...


class LocalController:
    """Calls the controller of this process. If it is inactive, the error is NOT_CONTROLLER."""

    def __init__(
        self,
        controller: Controller,
        describe_quorum: Callable[[Any, int], Message],
        quorum: Callable[[], QuorumApi],
        guard: Guard | None = None,
    ) -> None:
        """Create the access to the controller of this process.

        Args:
            controller: the controller of this process.
            describe_quorum: returns the response to a DescribeQuorum request of a version.
            quorum: returns the API for voter changes, created at the first use.
            guard: checks requests of clients; None if every client may do everything.
        """
        self._controller = controller
        self._describe_quorum = describe_quorum
        self._quorum = quorum
        self._guard = guard

    @property
    def is_active(self) -> bool:
        """Whether the controller is active and serves requests."""
        return self._controller.is_active

    def send(
        self,
        request: Message,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None = None,
        client_context: RequestContext | None = None,
    ) -> None:
        """See `ControllerAccess.send`. Requests of clients are checked."""
        if client_context is None or self._guard is None:
            self._send(request, on_done, mutations, client_context)
            return
        self._guard.serve(
            client_context,
            request,
            lambda allowed, on_response: self._send(
                allowed, on_response, mutations, client_context
            ),
            on_done,
        )

    def _send(
        self,
        request: Message,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None,
        client_context: RequestContext | None,
    ) -> None:
        key = request.__api_key__
        if key in API_CONTROLS:
            requester = ANONYMOUS if client_context is None else client_context.principal
            self._controller.serve(request, on_done, mutations, requester)
            return
        version = api_row(key).last_version if client_context is None else client_context.version
        if key == ApiKey.DESCRIBE_QUORUM:
            on_done(self._describe_quorum(request, version))
        else:
            self._quorum().serve(request, version, on_done)
