"""Interface for requests to the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.controller.result import MutationLimit
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import RequestContext


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
