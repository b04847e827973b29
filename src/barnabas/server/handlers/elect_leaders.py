"""ElectLeaders: key 43, v0-2. Preferred and (v1) unclean elections (KIP-183, KIP-460)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return ElectLeadersHandler(parts).handle_elect_leaders


class ElectLeadersHandler:
    """Hands the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: ServerParts) -> None:
        self._forwarding = parts.forwarding

    def handle_elect_leaders(self, context: RequestContext, request: ElectLeadersRequest) -> None:
        """Answered when the new leaders are committed."""
        self._forwarding.send(request, context.respond)
