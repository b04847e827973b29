"""AlterPartitionReassignments (key 45, v0-1): move partitions to other replicas (KIP-455).

v1 lets a client forbid changes of the replication factor (KIP-860).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeParts


def handler(parts: NodeParts) -> Handle:
    """Return the handler that starts and cancels partition reassignments."""
    return AlterPartitionReassignmentsHandler(parts).handle_alter_partition_reassignments


class AlterPartitionReassignmentsHandler:
    """Forwards the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_alter_partition_reassignments(
        self, context: RequestContext, request: AlterPartitionReassignmentsRequest
    ) -> None:
        """Forward the request. The response follows when the reassignments are committed."""
        self._forwarding.send(request, context.respond_forwarded, client_context=context)
