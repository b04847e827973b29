"""CreateTopics (key 19, v0-7): create topics or only validate them.

v5 returns the configurations of new topics, v7 their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.handlers.mutations import forward_mutation

if TYPE_CHECKING:
    from barnabas.protocol.messages.create_topics import CreateTopicsRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeParts

# First version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_STRICT_SINCE = 6


def handler(parts: NodeParts) -> Handle:
    """Return the handler that creates topics."""
    return CreateTopicsHandler(parts).handle_create_topics


class CreateTopicsHandler:
    """Forwards the request to the active controller."""

    __slots__ = ("_parts",)

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts

    def handle_create_topics(self, context: RequestContext, request: CreateTopicsRequest) -> None:
        """Forward the request. The response follows when this broker has applied the new topics."""
        forward_mutation(self._parts, context, request, _STRICT_SINCE)
