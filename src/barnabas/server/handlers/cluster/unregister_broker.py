"""UnregisterBroker (key 64, v0): remove a broker permanently from the cluster (KIP-500)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeParts


def handler(parts: NodeParts) -> Handle:
    """Return the handler that unregisters brokers."""
    return UnregisterBrokerHandler(parts).handle_unregister_broker


class UnregisterBrokerHandler:
    """Forwards the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_unregister_broker(
        self, context: RequestContext, request: UnregisterBrokerRequest
    ) -> None:
        """Forward the request. The response follows when the removal is committed."""
        self._forwarding.send(request, context.respond_forwarded, client_context=context)
