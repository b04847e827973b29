"""DescribeGroups, ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe.

DescribeGroups (key 15, v0-6) describes classic groups. v3 adds authorized operations (KIP-430), v4
static members (KIP-345), v6 the error GROUP_ID_NOT_FOUND (KIP-1043). ConsumerGroupDescribe (69,
v0-1; v1 adds the types of members), ShareGroupDescribe (77, v1) and StreamsGroupDescribe
(89, v0-1; v1 adds descriptions of topologies, KIP-1331) describe groups of the other kinds. They
leave out groups with topics that the client may not describe.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.coordinator.group.requests.member_requests import failed_group
from barnabas.coordinator.group.requests.share_requests import failed_share_group
from barnabas.coordinator.group.requests.streams_requests import failed_streams_group
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from barnabas.protocol.messages.groups import DescribeGroupsResponse
from barnabas.protocol.messages.share_groups import ShareGroupDescribeResponse
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeResponse
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.server.handlers.authorized_operations import GROUP_OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.metadata.metadata_version import FeaturesImage
    from barnabas.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
    from barnabas.protocol.messages.groups import DescribeGroupsRequest
    from barnabas.protocol.messages.share_groups import DescribedGroup as ShareGroup
    from barnabas.protocol.messages.streams_group_describe import DescribedGroup as StreamsGroup
    from barnabas.protocol.schema import Message
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import Access, Handle, RequestContext

    # Describes groups in steps, and passes the descriptions to its argument.
    Describe = Callable[[Callable[[list[Any]], None]], Generator[None, None, None]]

_DESCRIBE = int(AclOperation.DESCRIBE)
_GROUP, _TOPIC = int(AclResourceType.GROUP), int(AclResourceType.TOPIC)


def describe_groups(groups: GroupCoordinator) -> Handle:
    """Return the handler that describes groups."""

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
            group = groups.groups.describe(group_id, context.version)
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = (
                    GROUP_OPERATIONS if access is None else access.operations(_GROUP, group_id)
                )
            described.append(group)
            yield
        return DescribeGroupsResponse(groups=described)

    return handle_describe_groups


class _Kind(NamedTuple):
    """The differences between consumer, share and streams groups."""

    # Returns whether the cluster has the feature of the kind.
    is_enabled: Callable[[FeaturesImage], bool]
    response: Callable[..., Message]
    # Returns the description of a group with an error and a message.
    failed: Callable[[str, ErrorCode, str | None], Any]
    # Returns the names of the topics that a group shows.
    topics_of: Callable[[Any], Iterable[str]]
    # Message for groups with topics that the client may not describe.
    refusal: str = "The group has described topic(s) that the client is not authorized to describe."
    # Message for all groups of a cluster without the feature.
    missing_feature: str | None = None


def consumer_group_describe(groups: GroupCoordinator, cluster: ClusterView) -> Handle:
    """Return the handler that describes consumer groups."""
    describe = groups.consumers.describe
    return _handler(cluster, _CONSUMER, lambda request: partial(describe, request.group_ids))


def share_group_describe(groups: GroupCoordinator, cluster: ClusterView) -> Handle:
    """Return the handler that describes share groups."""
    describe = groups.shares.describe
    return _handler(cluster, _SHARE, lambda request: partial(describe, request.group_ids))


def streams_group_describe(groups: GroupCoordinator, cluster: ClusterView) -> Handle:
    """Return the handler that describes streams groups."""
    describe = groups.streams.describe
    return _handler(
        cluster,
        _STREAMS,
        lambda request: partial(
            describe,
            request.group_ids,
            includes_description=request.include_topology_description,
        ),
    )


def _handler(cluster: ClusterView, kind: _Kind, describe: Callable[[Any], Describe]) -> Handle:
    """Return the handler of one kind of groups.

    Args:
        cluster: has the features of the cluster.
        kind: what differs between the kinds.
        describe: returns the function that describes the groups of a request in steps, and passes
            the descriptions to its argument.
    """

    def handle(context: RequestContext, request: Any) -> Message | None:
        if not kind.is_enabled(cluster.image.features):
            return kind.response(
                groups=[
                    kind.failed(each, ErrorCode.UNSUPPORTED_VERSION, kind.missing_feature)
                    for each in request.group_ids
                ]
            )

        def respond(groups: list[Any]) -> None:
            context.respond_in_slices(_visible_groups(context.access, kind, request, groups))

        return context.in_slices(describe(request)(respond))

    return handle


def _visible_groups(
    access: Access | None, kind: _Kind, request: Any, groups: list[Any]
) -> Generator[None, None, Message]:
    """Make the response, with errors for groups with topics that the client may not describe."""
    shown = []
    for group in groups:
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = (
                GROUP_OPERATIONS if access is None else access.operations(_GROUP, group.group_id)
            )
        is_visible = access is None or all(
            access.allows(_DESCRIBE, _TOPIC, name, is_logged=False)
            for name in sorted(set(kind.topics_of(group)))
        )
        if is_visible:
            shown.append(group)
        else:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            shown.append(kind.failed(group.group_id, error, kind.refusal))
        yield
    return kind.response(groups=shown)


def _consumer_topics(group: ConsumerGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for partitions in assignment.topic_partitions:
                yield partitions.topic_name


def _share_topics(group: ShareGroup) -> Iterator[str]:
    for member in group.members:
        for partitions in member.assignment.topic_partitions:
            yield partitions.topic_name


def _streams_topics(group: StreamsGroup) -> Iterator[str]:
    """Yield the names of all topics of the topology."""
    if group.topology is None:
        return
    for subtopology in group.topology.subtopologies or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name


_CONSUMER = _Kind(
    lambda features: features.has_consumer_groups,
    ConsumerGroupDescribeResponse,
    failed_group,
    _consumer_topics,
)
_SHARE = _Kind(
    lambda features: features.has_share_groups,
    ShareGroupDescribeResponse,
    failed_share_group,
    _share_topics,
    missing_feature=ErrorCode.UNSUPPORTED_VERSION.message,
)
_STREAMS = _Kind(
    lambda features: features.has_streams_groups,
    StreamsGroupDescribeResponse,
    failed_streams_group,
    _streams_topics,
    "The described group uses topics that the client is not authorized to describe.",
)
