"""DeleteTopics: key 20, v1-6. Topics deleted by name or (v6) id."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


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
        self._forwarding.send(request, context.respond)
