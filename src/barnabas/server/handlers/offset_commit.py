"""OffsetCommit: key 8, v2-10. Commits a group's offsets (v10 names topics by id, KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return OffsetCommitHandler(parts).handle_offset_commit


class OffsetCommitHandler:
    """Hands the request to the group coordinator."""

    __slots__ = ("_groups",)

    def __init__(self, parts: ServerParts) -> None:
        self._groups = parts.groups

    def handle_offset_commit(self, context: RequestContext, request: OffsetCommitRequest) -> None:
        """Answered when the offsets are committed."""
        self._groups.commit_offsets(request, context.version, context.respond)
