"""Requests about the offsets of share groups (KIP-932, KIP-1226), one function each.

DescribeShareGroupOffsets (key 90, v0-1; v1 adds the lag), AlterShareGroupOffsets (91, v0) and
DeleteShareGroupOffsets (92, v0). `broker_apis` names the functions. Each returns the handler of its
API.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.requests.share_offset_requests import (
    failed_alteration,
    failed_deletion,
    failed_offsets,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_groups import (
    DescribeShareGroupOffsetsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.coordinator.group.requests.share_offset_requests import ShareOffsetDescriptions
    from barnabas.protocol.messages.share_groups import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponse,
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponseGroup,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

    Described = Generator[None, None, DescribeShareGroupOffsetsResponseGroup]

_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


def describe_share_group_offsets(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that describes offsets and lags of several groups."""
    descriptions, cluster = dependencies.groups.share_descriptions, dependencies.cluster

    def handle_describe_share_group_offsets(
        context: RequestContext, request: DescribeShareGroupOffsetsRequest
    ) -> DescribeShareGroupOffsetsResponse | None:
        if not cluster.image.features.has_share_groups:
            return DescribeShareGroupOffsetsResponse(
                groups=[
                    failed_offsets(each.group_id, _UNSUPPORTED, None) for each in request.groups
                ]
            )
        if not request.groups:
            return DescribeShareGroupOffsetsResponse(groups=[])
        return context.in_slices(_describe(descriptions, context, request))

    return handle_describe_share_group_offsets


def _describe(
    descriptions: ShareOffsetDescriptions,
    context: RequestContext,
    request: DescribeShareGroupOffsetsRequest,
) -> Generator[None, None, None]:
    """Describe all groups, and respond when the last one is described."""
    found: dict[int, Described] = {}

    def build() -> Generator[None, None, DescribeShareGroupOffsetsResponse]:
        groups: dict[int, DescribeShareGroupOffsetsResponseGroup] = {}
        for index in range(len(request.groups)):
            groups[index] = yield from found[index]
        return DescribeShareGroupOffsetsResponse(groups=list(groups.values()))

    def on_described(index: int, steps: Described) -> None:
        found[index] = steps
        if len(found) == len(request.groups):
            context.respond_in_slices(build())

    for index, group in enumerate(request.groups):
        yield from descriptions.describe(group, partial(on_described, index))
        yield


def alter_share_group_offsets(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that sets the start offsets of a group without members."""
    offsets, cluster = dependencies.groups.share_offsets, dependencies.cluster

    def handle_alter_share_group_offsets(
        context: RequestContext, request: AlterShareGroupOffsetsRequest
    ) -> AlterShareGroupOffsetsResponse | None:
        if not cluster.image.features.has_share_groups:
            return failed_alteration(_UNSUPPORTED)
        context.in_slices(offsets.alter(request, context.respond_in_slices))
        return None

    return handle_alter_share_group_offsets


def delete_share_group_offsets(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that deletes the offsets of topics of a group without members."""
    offsets, cluster = dependencies.groups.share_offsets, dependencies.cluster

    def handle_delete_share_group_offsets(
        context: RequestContext, request: DeleteShareGroupOffsetsRequest
    ) -> DeleteShareGroupOffsetsResponse | None:
        if not cluster.image.features.has_share_groups:
            return failed_deletion(_UNSUPPORTED)
        context.in_slices(offsets.delete(request, context.respond))
        return None

    return handle_delete_share_group_offsets
