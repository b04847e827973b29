"""ConsumerGroupDescribe (key 69, v0-1): describe consumer groups (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.requests.consumer_requests import failed_group
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from barnabas.server.handlers.authorized_operations import GROUP_OPERATIONS

if TYPE_CHECKING:
    from barnabas.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        DescribedGroup,
    )
    from barnabas.server.dispatch.access import Access
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_DESCRIBE = int(AclOperation.DESCRIBE)
_GROUP, _TOPIC = int(AclResourceType.GROUP), int(AclResourceType.TOPIC)


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that describes consumer groups."""
    consumers, cluster = dependencies.groups.consumers, dependencies.cluster

    def handle_consumer_group_describe(
        context: RequestContext, request: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse | None:
        if not cluster.image.features.has_consumer_groups:
            return ConsumerGroupDescribeResponse(
                groups=[
                    failed_group(each, ErrorCode.UNSUPPORTED_VERSION, None)
                    for each in request.group_ids
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
            context.respond(ConsumerGroupDescribeResponse(groups=groups))

        return context.in_slices(consumers.describe(request.group_ids, respond))

    return handle_consumer_group_describe


def _visible(access: Access, group: DescribedGroup) -> DescribedGroup:
    """Return the group, or an error if it has topics that the client may not describe."""
    topics = {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }
    if all(access.allows(_DESCRIBE, _TOPIC, name, is_logged=False) for name in sorted(topics)):
        return group
    return failed_group(
        group.group_id,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "The group has described topic(s) that the client is not authorized to describe.",
    )
