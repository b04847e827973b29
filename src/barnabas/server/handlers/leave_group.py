"""LeaveGroup: key 13, v0-5. Members go (v3 many at once, KIP-345; v5 reasons, KIP-800)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.leave_group import LeaveGroupRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return LeaveGroupHandler(parts).handle_leave_group


class LeaveGroupHandler:
    """Hands the request to the group coordinator."""

    __slots__ = ("_members",)

    def __init__(self, parts: ServerParts) -> None:
        self._members = parts.groups.members

    def handle_leave_group(self, context: RequestContext, request: LeaveGroupRequest) -> None:
        """Answered when the group without them is written, if it is."""
        self._members.leave(request, context.version, context.respond)
