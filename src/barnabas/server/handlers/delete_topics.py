"""DeleteTopics: key 20, v0-6. Topics deleted by name or (v6) id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.mutations import forward_mutation

if TYPE_CHECKING:
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext

# From here on clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_STRICT_SINCE = 5


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return DeleteTopicsHandler(parts).handle_delete_topics


class DeleteTopicsHandler:
    """Hands the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: ServerParts) -> None:
        self._forwarding = parts.forwarding

    def handle_delete_topics(self, context: RequestContext, request: DeleteTopicsRequest) -> None:
        """Answered when the deletion is committed."""
        forward_mutation(self._forwarding, context, request, _STRICT_SINCE)
