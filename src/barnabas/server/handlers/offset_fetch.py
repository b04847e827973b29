"""OffsetFetch: key 9, v1-10. A group's committed offsets (v8 many groups, v10 topic ids)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return OffsetFetchHandler(parts).handle_offset_fetch


class OffsetFetchHandler:
    """Asks the group coordinator."""

    __slots__ = ("_groups",)

    def __init__(self, parts: ServerParts) -> None:
        self._groups = parts.groups

    def handle_offset_fetch(
        self, context: RequestContext, request: OffsetFetchRequest
    ) -> OffsetFetchResponse:
        """What is committed, or why it cannot be told."""
        return self._groups.fetch_offsets(request, context.version)
