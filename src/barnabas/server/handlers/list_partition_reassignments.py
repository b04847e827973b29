"""ListPartitionReassignments: key 46, v0. Which partitions are on the move (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
    )
    from barnabas.server.parts import NodeParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: NodeParts) -> Handle:
    """The handler of this API."""
    return ListPartitionReassignmentsHandler(parts).handle_list_partition_reassignments


class ListPartitionReassignmentsHandler:
    """Hands the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_list_partition_reassignments(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> None:
        """Answered by the controller, which knows first."""
        self._forwarding.send(request, context.respond_forwarded, asker=context)
