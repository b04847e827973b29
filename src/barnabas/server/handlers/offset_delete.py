"""OffsetDelete: key 47, v0. Forget committed offsets of topics that nobody reads (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return OffsetDeleteHandler(parts).handle_offset_delete


class OffsetDeleteHandler:
    """Asks the group coordinator."""

    __slots__ = ("_groups",)

    def __init__(self, parts: ServerParts) -> None:
        self._groups = parts.groups.groups

    def handle_offset_delete(self, context: RequestContext, request: OffsetDeleteRequest) -> None:
        """Answered when the offsets are gone or refused."""
        self._groups.delete_offsets(request, context.respond)
