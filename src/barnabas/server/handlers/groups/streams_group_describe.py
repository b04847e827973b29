"""StreamsGroupDescribe (key 89, v0-1): describe streams groups (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.requests.streams_requests import failed_streams_group
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeResponse
from barnabas.server.handlers.groups.described_groups import visible_groups

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from barnabas.protocol.messages.streams_group_describe import (
        DescribedGroup,
        StreamsGroupDescribeRequest,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_REFUSED = "The described group uses topics that the client is not authorized to describe."


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

        def build(
            groups: list[DescribedGroup],
        ) -> Generator[None, None, StreamsGroupDescribeResponse]:
            shown = yield from visible_groups(
                context.access,
                groups,
                _topics,
                failed_streams_group,
                _REFUSED,
                includes_operations=request.include_authorized_operations,
            )
            return StreamsGroupDescribeResponse(groups=shown)

        def respond(groups: list[DescribedGroup]) -> None:
            context.respond_in_slices(build(groups))

        return context.in_slices(
            streams.describe(
                request.group_ids,
                respond,
                includes_description=request.include_topology_description,
            )
        )

    return handle_streams_group_describe


def _topics(group: DescribedGroup) -> Iterator[str]:
    """Yield the names of all topics of the topology."""
    if group.topology is None:
        return
    for subtopology in group.topology.subtopologies or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name
