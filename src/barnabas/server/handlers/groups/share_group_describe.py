"""ShareGroupDescribe (key 77, v1): describe share groups (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.requests.share_requests import failed_share_group
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_group_describe import ShareGroupDescribeResponse
from barnabas.server.handlers.authorized_operations import GROUP_OPERATIONS

if TYPE_CHECKING:
    from barnabas.protocol.messages.share_group_describe import (
        DescribedGroup,
        ShareGroupDescribeRequest,
    )
    from barnabas.server.dispatch.access import Access
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_DESCRIBE = int(AclOperation.DESCRIBE)
_GROUP, _TOPIC = int(AclResourceType.GROUP), int(AclResourceType.TOPIC)


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that describes share groups."""
    shares, cluster = dependencies.groups.shares, dependencies.cluster

    def handle_share_group_describe(
        context: RequestContext, request: ShareGroupDescribeRequest
    ) -> ShareGroupDescribeResponse | None:
        if not cluster.image.features.has_share_groups:
            error = ErrorCode.UNSUPPORTED_VERSION
            return ShareGroupDescribeResponse(
                groups=[
                    failed_share_group(each, error, error.message) for each in request.group_ids
                ]
            )

        def respond(groups: list[DescribedGroup]) -> None:
            access = context.access
            for group in groups:
                if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                    group.authorized_operations = (
                        GROUP_OPERATIONS
                        if access is None
                        else access.operations(_GROUP, group.group_id)
                    )
            if access is not None:
                groups = [_visible(access, group) for group in groups]
            context.respond(ShareGroupDescribeResponse(groups=groups))

        return context.in_slices(shares.describe(request.group_ids, respond))

    return handle_share_group_describe


def _visible(access: Access, group: DescribedGroup) -> DescribedGroup:
    """Return the group, or an error if it has topics that the client may not describe."""
    topics = {
        partitions.topic_name
        for member in group.members
        for partitions in member.assignment.topic_partitions
    }
    if all(access.allows(_DESCRIBE, _TOPIC, name, is_logged=False) for name in sorted(topics)):
        return group
    return failed_share_group(
        group.group_id,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "The group has described topic(s) that the client is not authorized to describe.",
    )
