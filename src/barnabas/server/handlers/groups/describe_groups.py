"""DescribeGroups (key 15, v0-6): describe groups (v3 KIP-430, v4 KIP-345, v6 KIP-1043)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import DescribeGroupsResponse
from barnabas.protocol.resources import AclResourceType
from barnabas.server.handlers.authorized_operations import GROUP_OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.groups import DescribeGroupsRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_GROUP = int(AclResourceType.GROUP)


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that describes groups."""
    return DescribeGroupsHandler(dependencies).handle_describe_groups


class DescribeGroupsHandler:
    """Reads the groups from the group coordinator."""

    __slots__ = ("_groups",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._groups = dependencies.groups.groups

    def handle_describe_groups(
        self, context: RequestContext, request: DescribeGroupsRequest
    ) -> DescribeGroupsResponse | None:
        """Describe each group, or return its error."""
        return context.in_slices(self._build_response(context, request))

    def _build_response(
        self, context: RequestContext, request: DescribeGroupsRequest
    ) -> Generator[None, None, DescribeGroupsResponse]:
        access = context.access
        described = []
        for group_id in request.groups:
            group = self._groups.describe(group_id, context.version)
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = (
                    GROUP_OPERATIONS if access is None else access.operations(_GROUP, group_id)
                )
            described.append(group)
            yield
        return DescribeGroupsResponse(groups=described)
