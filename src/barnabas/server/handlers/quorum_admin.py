"""AddRaftVoter (80), RemoveRaftVoter (81): the quorum's voters are changed (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.parts import NodeParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: NodeParts) -> Handle:
    """The handler of these APIs."""
    return QuorumAdminHandler(parts).handle_quorum_admin


class QuorumAdminHandler:
    """Hands the request to the active controller, which leads the quorum."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_quorum_admin(self, context: RequestContext, request: Message) -> None:
        """Answered when the change is committed, or refused."""
        self._forwarding.send(request, context.respond_forwarded, asker=context)
