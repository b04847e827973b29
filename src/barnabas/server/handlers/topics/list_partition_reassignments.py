"""ListPartitionReassignments (key 46, v0): list the reassignments in progress (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeParts


def handler(parts: NodeParts) -> Handle:
    """Return the handler that lists reassignments in progress."""
    return ListPartitionReassignmentsHandler(parts).handle_list_partition_reassignments


class ListPartitionReassignmentsHandler:
    """Forwards the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_list_partition_reassignments(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> None:
        """Forward the request to the active controller, which has the latest metadata."""
        self._forwarding.send(request, context.respond_forwarded, client_context=context)
