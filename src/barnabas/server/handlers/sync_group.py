"""SyncGroup: key 14, v0-5. The leader brings the assignment, all get their share (v5 KIP-559)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.sync_group import SyncGroupRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return SyncGroupHandler(parts).handle_sync_group


class SyncGroupHandler:
    """Hands the request to the group coordinator."""

    __slots__ = ("_members",)

    def __init__(self, parts: ServerParts) -> None:
        self._members = parts.groups.members

    def handle_sync_group(self, context: RequestContext, request: SyncGroupRequest) -> None:
        """Answered when the assignment is written."""
        self._members.sync(request, context.version, context.respond)
