"""DeleteGroups (key 42, v0-3): delete groups without members (KIP-229)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that deletes groups."""
    return DeleteGroupsHandler(dependencies).handle_delete_groups


class DeleteGroupsHandler:
    """Passes the request to the group coordinator."""

    __slots__ = ("_groups",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._groups = dependencies.groups.groups

    def handle_delete_groups(self, context: RequestContext, request: DeleteGroupsRequest) -> None:
        """Delete the groups. The response follows when all of them are deleted or rejected."""
        context.in_slices(self._groups.delete(request.groups_names, context.respond))
