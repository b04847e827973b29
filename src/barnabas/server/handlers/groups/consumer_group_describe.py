"""ConsumerGroupDescribe (key 69, v0-1): describe consumer groups (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.requests.member_requests import failed_group
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from barnabas.server.handlers.groups.described_groups import visible_groups

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from barnabas.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        DescribedGroup,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


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

        def build(
            groups: list[DescribedGroup],
        ) -> Generator[None, None, ConsumerGroupDescribeResponse]:
            shown = yield from visible_groups(
                context.access,
                groups,
                _topics,
                failed_group,
                includes_operations=request.include_authorized_operations,
            )
            return ConsumerGroupDescribeResponse(groups=shown)

        def respond(groups: list[DescribedGroup]) -> None:
            context.respond_in_slices(build(groups))

        return context.in_slices(consumers.describe(request.group_ids, respond))

    return handle_consumer_group_describe


def _topics(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for partitions in assignment.topic_partitions:
                yield partitions.topic_name
