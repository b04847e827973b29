"""ShareGroupDescribe (key 77, v1): describe share groups (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.requests.share_requests import failed_share_group
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_groups import ShareGroupDescribeResponse
from barnabas.server.handlers.groups.described_groups import visible_groups

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from barnabas.protocol.messages.share_groups import (
        DescribedGroup,
        ShareGroupDescribeRequest,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


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

        def build(
            groups: list[DescribedGroup],
        ) -> Generator[None, None, ShareGroupDescribeResponse]:
            shown = yield from visible_groups(
                context.access,
                groups,
                _topics,
                failed_share_group,
                includes_operations=request.include_authorized_operations,
            )
            return ShareGroupDescribeResponse(groups=shown)

        def respond(groups: list[DescribedGroup]) -> None:
            context.respond_in_slices(build(groups))

        return context.in_slices(shares.describe(request.group_ids, respond))

    return handle_share_group_describe


def _topics(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for partitions in member.assignment.topic_partitions:
            yield partitions.topic_name
