"""OffsetDelete (key 47, v0): delete committed offsets of unsubscribed topics (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.committed_offsets import (
        OffsetDeleteRequest,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that deletes committed offsets."""
    return OffsetDeleteHandler(dependencies).handle_offset_delete


class OffsetDeleteHandler:
    """Passes the request to the group coordinator."""

    __slots__ = ("_groups",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._groups = dependencies.groups.groups

    def handle_offset_delete(self, context: RequestContext, request: OffsetDeleteRequest) -> None:
        """Delete the offsets. The response follows when all of them are deleted or rejected."""
        context.in_slices(self._groups.delete_offsets(request, context.respond_in_slices))
