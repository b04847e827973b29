"""CreatePartitions (key 37, v0-3): add partitions to topics (KIP-195)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.handlers.mutations import forward_mutation

if TYPE_CHECKING:
    from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeParts

# First version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_STRICT_SINCE = 3


def handler(parts: NodeParts) -> Handle:
    """Return the handler that adds partitions to topics."""
    return CreatePartitionsHandler(parts).handle_create_partitions


class CreatePartitionsHandler:
    """Forwards the request to the active controller."""

    __slots__ = ("_parts",)

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts

    def handle_create_partitions(
        self, context: RequestContext, request: CreatePartitionsRequest
    ) -> None:
        """Forward the request. The response follows when this broker has the new partitions."""
        forward_mutation(self._parts, context, request, _STRICT_SINCE)
