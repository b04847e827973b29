"""AddRaftVoter (key 80), RemoveRaftVoter (key 81): change the voters of the quorum (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeParts


def handler(parts: NodeParts) -> Handle:
    """Return the handler that changes the voters of the metadata quorum."""
    return QuorumAdminHandler(parts).handle_quorum_admin


class QuorumAdminHandler:
    """Forwards the request to the active controller, which is the leader of the quorum."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_quorum_admin(self, context: RequestContext, request: Message) -> None:
        """Forward the request. The response follows when the change is committed or rejected."""
        self._forwarding.send(request, context.respond_forwarded, client_context=context)
