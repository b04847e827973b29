"""CreateTopics: key 19, v0-7. Makes topics, or only checks them (v5 answers configs, v7 ids)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.mutations import forward_mutation

if TYPE_CHECKING:
    from barnabas.protocol.messages.create_topics import CreateTopicsRequest
    from barnabas.server.parts import NodeParts
    from barnabas.server.request import Handle, RequestContext

# From here on clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_STRICT_SINCE = 6


def handler(parts: NodeParts) -> Handle:
    """The handler of this API."""
    return CreateTopicsHandler(parts).handle_create_topics


class CreateTopicsHandler:
    """Hands the request to the active controller."""

    __slots__ = ("_parts",)

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts

    def handle_create_topics(self, context: RequestContext, request: CreateTopicsRequest) -> None:
        """Answered when the topics are committed."""
        forward_mutation(self._parts, context, request, _STRICT_SINCE)
