"""ListGroups (key 16, v0-5): list groups of this broker (v4 by state KIP-518, v5 type KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that lists groups."""
    return ListGroupsHandler(dependencies).handle_list_groups


class ListGroupsHandler:
    """Reads the groups from the group coordinator."""

    __slots__ = ("_groups",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._groups = dependencies.groups.groups

    def handle_list_groups(
        self, context: RequestContext, request: ListGroupsRequest
    ) -> ListGroupsResponse | None:
        """List the groups that match the filters of the request."""
        return context.in_slices(self._groups.list_groups(request))
