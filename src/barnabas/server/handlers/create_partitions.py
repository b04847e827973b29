"""CreatePartitions: key 37, v0-3. Partitions added to topics (KIP-195)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.mutations import forward_mutation

if TYPE_CHECKING:
    from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
    from barnabas.server.parts import NodeParts
    from barnabas.server.request import Handle, RequestContext

# From here on clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_STRICT_SINCE = 3


def handler(parts: NodeParts) -> Handle:
    """The handler of this API."""
    return CreatePartitionsHandler(parts).handle_create_partitions


class CreatePartitionsHandler:
    """Hands the request to the active controller."""

    __slots__ = ("_parts",)

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts

    def handle_create_partitions(
        self, context: RequestContext, request: CreatePartitionsRequest
    ) -> None:
        """Answered when the partitions are committed."""
        forward_mutation(self._parts, context, request, _STRICT_SINCE)
