"""Heartbeat: key 12, v0-4. A member lives; it is told when to join again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.heartbeat import HeartbeatRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return HeartbeatHandler(parts).handle_heartbeat


class HeartbeatHandler:
    """Hands the request to the group coordinator."""

    __slots__ = ("_members",)

    def __init__(self, parts: ServerParts) -> None:
        self._members = parts.groups.members

    def handle_heartbeat(self, context: RequestContext, request: HeartbeatRequest) -> None:
        """Answered at once, unless a write of the group is under way."""
        self._members.heartbeat(request, context.respond)
