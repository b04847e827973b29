"""DescribeGroups, ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe.

DescribeGroups (key 15, v0-6) describes classic groups. v3 adds authorized operations (KIP-430), v4
static members (KIP-345), v6 the error GROUP_ID_NOT_FOUND (KIP-1043). ConsumerGroupDescribe (69,
v0-1; v1 adds the types of members), ShareGroupDescribe (77, v1) and StreamsGroupDescribe
(89, v0-1; v1 adds descriptions of topologies, KIP-1331) describe groups of the other kinds. They
leave out groups with topics that the client may not describe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.coordinator.group.requests.consumer_requests import failed_group
from barnabas.coordinator.group.requests.share_requests import failed_share_group
from barnabas.coordinator.group.requests.streams_requests import failed_streams_group
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from barnabas.protocol.messages.describe_groups import DescribeGroupsResponse
from barnabas.protocol.messages.share_group_describe import ShareGroupDescribeResponse
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeResponse
from barnabas.server.handlers.authorized_operations import GROUP_OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from barnabas.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        DescribedGroup as ConsumerGroup,
    )
    from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
    from barnabas.protocol.messages.share_group_describe import (
        DescribedGroup as ShareGroup,
        ShareGroupDescribeRequest,
    )
    from barnabas.protocol.messages.streams_group_describe import (
        DescribedGroup as StreamsGroup,
        StreamsGroupDescribeRequest,
    )
    from barnabas.server.dispatch.request import Access, Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


_GROUP, _TOPIC = int(AclResourceType.GROUP), int(AclResourceType.TOPIC)


def describe_groups(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that describes groups."""
    groups = dependencies.groups.groups

    def handle_describe_groups(
        context: RequestContext, request: DescribeGroupsRequest
    ) -> DescribeGroupsResponse | None:
        """Describe each group, or return its error."""
        return context.in_slices(build_response(context, request))

    def build_response(
        context: RequestContext, request: DescribeGroupsRequest
    ) -> Generator[None, None, DescribeGroupsResponse]:
        access = context.access
        described = []
        for group_id in request.groups:
            group = groups.describe(group_id, context.version)
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = (
                    GROUP_OPERATIONS if access is None else access.operations(_GROUP, group_id)
                )
            described.append(group)
            yield
        return DescribeGroupsResponse(groups=described)

    return handle_describe_groups


_DESCRIBE = int(AclOperation.DESCRIBE)
_REFUSED = "The group has described topic(s) that the client is not authorized to describe."


class _DescribedGroup(Protocol):
    error_code: int
    group_id: str
    authorized_operations: int


D = TypeVar("D", bound=_DescribedGroup)


def visible_groups(
    access: Access | None,
    groups: list[D],
    topics_of: Callable[[D], Iterable[str]],
    failed: Callable[[str, ErrorCode, str], D],
    message: str = _REFUSED,
    *,
    includes_operations: bool,
) -> Generator[None, None, list[D]]:
    """Return the groups, with errors for groups with topics that the client may not describe.

    Args:
        access: the rights of the client, or None if rights are not checked.
        groups: the described groups.
        topics_of: returns the names of the topics that a group shows.
        failed: returns the description of a group with an error and a message.
        message: the message for groups with such topics.
        includes_operations: whether the client asks what it may do with the groups.
    """
    shown: list[D] = []
    for group in groups:
        if includes_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = (
                GROUP_OPERATIONS if access is None else access.operations(_GROUP, group.group_id)
            )
        is_visible = access is None or all(
            access.allows(_DESCRIBE, _TOPIC, name, is_logged=False)
            for name in sorted(set(topics_of(group)))
        )
        if not is_visible:
            group = failed(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
        shown.append(group)
        yield
    return shown


def consumer_group_describe(dependencies: BrokerDependencies) -> Handle:
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

        def build(
            groups: list[ConsumerGroup],
        ) -> Generator[None, None, ConsumerGroupDescribeResponse]:
            shown = yield from visible_groups(
                context.access,
                groups,
                _consumer_topics,
                failed_group,
                includes_operations=request.include_authorized_operations,
            )
            return ConsumerGroupDescribeResponse(groups=shown)

        def respond(groups: list[ConsumerGroup]) -> None:
            context.respond_in_slices(build(groups))

        return context.in_slices(consumers.describe(request.group_ids, respond))

    return handle_consumer_group_describe


def _consumer_topics(group: ConsumerGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for partitions in assignment.topic_partitions:
                yield partitions.topic_name


def share_group_describe(dependencies: BrokerDependencies) -> Handle:
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

        def build(
            groups: list[ShareGroup],
        ) -> Generator[None, None, ShareGroupDescribeResponse]:
            shown = yield from visible_groups(
                context.access,
                groups,
                _share_topics,
                failed_share_group,
                includes_operations=request.include_authorized_operations,
            )
            return ShareGroupDescribeResponse(groups=shown)

        def respond(groups: list[ShareGroup]) -> None:
            context.respond_in_slices(build(groups))

        return context.in_slices(shares.describe(request.group_ids, respond))

    return handle_share_group_describe


def _share_topics(group: ShareGroup) -> Iterator[str]:
    for member in group.members:
        for partitions in member.assignment.topic_partitions:
            yield partitions.topic_name


_REFUSED_STREAMS = "The described group uses topics that the client is not authorized to describe."


def streams_group_describe(dependencies: BrokerDependencies) -> Handle:
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

        def build(
            groups: list[StreamsGroup],
        ) -> Generator[None, None, StreamsGroupDescribeResponse]:
            shown = yield from visible_groups(
                context.access,
                groups,
                _streams_topics,
                failed_streams_group,
                _REFUSED_STREAMS,
                includes_operations=request.include_authorized_operations,
            )
            return StreamsGroupDescribeResponse(groups=shown)

        def respond(groups: list[StreamsGroup]) -> None:
            context.respond_in_slices(build(groups))

        return context.in_slices(
            streams.describe(
                request.group_ids,
                respond,
                includes_description=request.include_topology_description,
            )
        )

    return handle_streams_group_describe


def _streams_topics(group: StreamsGroup) -> Iterator[str]:
    """Yield the names of all topics of the topology."""
    if group.topology is None:
        return
    for subtopology in group.topology.subtopologies or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name
