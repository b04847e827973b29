"""UnregisterController (key 94, v0): remove a controller that is no longer a voter."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.unregister_controller import UnregisterControllerRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeParts


def handler(parts: NodeParts) -> Handle:
    """Return the handler that unregisters controllers."""
    return UnregisterControllerHandler(parts).handle_unregister_controller


class UnregisterControllerHandler:
    """Forwards the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_unregister_controller(
        self, context: RequestContext, request: UnregisterControllerRequest
    ) -> None:
        """Forward the request. The response follows when its unregistration is committed."""
        self._forwarding.send(request, context.respond_forwarded, client_context=context)
