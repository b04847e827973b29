"""UnregisterController: key 94, v0. Forgets a controller that is no voter any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.unregister_controller import UnregisterControllerRequest
    from barnabas.server.parts import NodeParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: NodeParts) -> Handle:
    """The handler of this API."""
    return UnregisterControllerHandler(parts).handle_unregister_controller


class UnregisterControllerHandler:
    """Hands the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_unregister_controller(
        self, context: RequestContext, request: UnregisterControllerRequest
    ) -> None:
        """Answered when the controller is gone from the metadata."""
        self._forwarding.send(request, context.respond_forwarded, asker=context)
