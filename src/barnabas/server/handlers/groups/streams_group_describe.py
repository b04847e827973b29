"""StreamsGroupDescribe (key 89, v0-1): describe streams groups (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.requests.streams_requests import failed_streams_group
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeResponse
from barnabas.server.handlers.authorized_operations import GROUP_OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.messages.streams_group_describe import (
        DescribedGroup,
        StreamsGroupDescribeRequest,
    )
    from barnabas.server.dispatch.access import Access
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_DESCRIBE = int(AclOperation.DESCRIBE)
_GROUP, _TOPIC = int(AclResourceType.GROUP), int(AclResourceType.TOPIC)


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that describes streams groups."""
    streams, cluster = dependencies.groups.streams, dependencies.cluster

    def handle_streams_group_describe(
        context: RequestContext, request: StreamsGroupDescribeRequest
    ) -> StreamsGroupDescribeResponse | None:
        if not cluster.image.features.has_streams_groups:
            error = ErrorCode.UNSUPPORTED_VERSION
            return StreamsGroupDescribeResponse(
                groups=[failed_streams_group(each, error, None) for each in request.group_ids]
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
            context.respond(StreamsGroupDescribeResponse(groups=groups))

        return context.in_slices(
            streams.describe(
                request.group_ids,
                respond,
                includes_description=request.include_topology_description,
            )
        )

    return handle_streams_group_describe


def _visible(access: Access, group: DescribedGroup) -> DescribedGroup:
    """Return the group, or an error if it has topics that the client may not describe."""
    topics = sorted(set(_topics(group)))
    if all(access.allows(_DESCRIBE, _TOPIC, name, is_logged=False) for name in topics):
        return group
    return failed_streams_group(
        group.group_id,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "The described group uses topics that the client is not authorized to describe.",
    )


def _topics(group: DescribedGroup) -> Iterator[str]:
    """Yield the names of all topics of the topology."""
    if group.topology is None:
        return
    for subtopology in group.topology.subtopologies or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name
