"""JoinGroup: key 11, v0-9. Become, or stay, a member (v4 KIP-394, v5 KIP-345, v9 KIP-814)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.membership import Joining

if TYPE_CHECKING:
    from barnabas.protocol.messages.join_group import JoinGroupRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return JoinGroupHandler(parts).handle_join_group


class JoinGroupHandler:
    """Hands the request to the group coordinator."""

    __slots__ = ("_members",)

    def __init__(self, parts: ServerParts) -> None:
        self._members = parts.groups.members

    def handle_join_group(self, context: RequestContext, request: JoinGroupRequest) -> None:
        """Answered when the group's next generation begins."""
        host = context.connection.peer.rpartition(":")[0].strip("[]")
        self._members.join(
            Joining(request, context.version, context.client_id or "", f"/{host}", context.respond)
        )
