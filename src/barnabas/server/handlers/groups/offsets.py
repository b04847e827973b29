"""Committed offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete, and those of share groups.

- OffsetCommit (key 8, v0-10): v1 may include the time of the commit, v6 adds the leader epoch, v7
  static members and v10 topic ids (KIP-848).
- OffsetFetch (key 9, v0-10): v2 can request all topics and adds a top-level error, v7 stable
  offsets (KIP-447), v8 several groups, v9 members of consumer groups and v10 topic ids. Before a
  client of transactions gets stable offsets, this coordinator checks that no other broker has
  become the coordinator. Apache Kafka does not check this.
- v0 of both was for offsets in ZooKeeper. Like Kafka 3.9 without ZooKeeper, this broker responds
  UNSUPPORTED_VERSION for each partition.
- OffsetDelete (key 47, v0) deletes offsets of unsubscribed topics (KIP-496).
- DescribeShareGroupOffsets (key 90, v0-1; v1 adds the lag), AlterShareGroupOffsets (91, v0) and
  DeleteShareGroupOffsets (92, v0) are for share groups (KIP-932, KIP-1226).
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
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from barnabas.protocol.messages.share_groups import (
    DescribeShareGroupOffsetsResponse,
)
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.coordinator.group.requests.share_offset_requests import ShareOffsetDescriptions
    from barnabas.protocol.messages.committed_offsets import OffsetDeleteRequest
    from barnabas.protocol.messages.share_groups import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponse,
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponseGroup,
    )
    from barnabas.protocol.schema import Message
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import Handle, RequestContext

    Described = Generator[None, None, DescribeShareGroupOffsetsResponseGroup]


def offset_commit(cluster: ClusterView, groups: GroupCoordinator) -> Handle:
    """Return the handler that commits offsets."""
    offsets = groups.offsets

    def handle_offset_commit(
        context: RequestContext, request: OffsetCommitRequest
    ) -> OffsetCommitResponse | None:
        """Commit the offsets. The response follows when they are written and replicated."""
        if context.version == 0:
            return context.in_slices(refused(request))
        context.in_slices(offsets.commit(request, context.version, context.respond))
        return None

    def refused(request: OffsetCommitRequest) -> Generator[None, None, OffsetCommitResponse]:
        topics = []
        for topic in request.topics:
            error = ErrorCode.UNSUPPORTED_VERSION
            if cluster.topic_id(topic.name) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = yield from gradually(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error
                )
                for partition in topic.partitions
            )
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
            yield
        return OffsetCommitResponse(topics=topics)

    return handle_offset_commit


def offset_fetch(groups: GroupCoordinator) -> Handle:
    """Return the handler that reads committed offsets."""
    offsets = groups.offsets

    def handle_offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> Message | None:
        """Return the committed offsets, or an error for each group."""
        version = context.version
        if version == 0:
            return context.in_slices(_refused(request))
        if not request.require_stable:
            return context.in_slices(offsets.fetch(request, version))

        def confirm(partitions: set[int]) -> None:
            offsets.confirm(
                partitions,
                lambda errors: context.respond_in_slices(offsets.fetch(request, version, errors)),
            )

        return context.after(offsets.partitions_of(request, version), confirm)

    return handle_offset_fetch


def _refused(request: OffsetFetchRequest) -> Generator[None, None, OffsetFetchResponse]:
    topics = []
    for topic in request.topics or ():
        partitions = yield from gradually(
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=-1,
                metadata="",
                error_code=ErrorCode.UNSUPPORTED_VERSION,
            )
            for index in topic.partition_indexes
        )
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
        yield
    return OffsetFetchResponse(topics=topics)


def offset_delete(groups: GroupCoordinator) -> Handle:
    """Return the handler that deletes committed offsets."""

    def handle_offset_delete(context: RequestContext, request: OffsetDeleteRequest) -> None:
        """Delete the offsets. The response follows when all of them are deleted or rejected."""
        context.in_slices(groups.groups.delete_offsets(request, context.respond_in_slices))

    return handle_offset_delete


_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


def describe_share_group_offsets(groups: GroupCoordinator, cluster: ClusterView) -> Handle:
    """Return the handler that describes offsets and lags of several groups."""
    descriptions = groups.share_descriptions

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
    described: dict[int, Described] = {}

    def build() -> Generator[None, None, DescribeShareGroupOffsetsResponse]:
        groups: dict[int, DescribeShareGroupOffsetsResponseGroup] = {}
        for index in range(len(request.groups)):
            groups[index] = yield from described[index]
        return DescribeShareGroupOffsetsResponse(groups=list(groups.values()))

    def on_described(index: int, steps: Described) -> None:
        described[index] = steps
        if len(described) == len(request.groups):
            context.respond_in_slices(build())

    for index, group in enumerate(request.groups):
        yield from descriptions.describe(group, partial(on_described, index))
        yield


def alter_share_group_offsets(groups: GroupCoordinator, cluster: ClusterView) -> Handle:
    """Return the handler that sets the start offsets of a group without members."""
    offsets = groups.share_offsets

    def handle_alter_share_group_offsets(
        context: RequestContext, request: AlterShareGroupOffsetsRequest
    ) -> AlterShareGroupOffsetsResponse | None:
        if not cluster.image.features.has_share_groups:
            return failed_alteration(_UNSUPPORTED)
        context.in_slices(offsets.alter(request, context.respond_in_slices))
        return None

    return handle_alter_share_group_offsets


def delete_share_group_offsets(groups: GroupCoordinator, cluster: ClusterView) -> Handle:
    """Return the handler that deletes the offsets of topics of a group without members."""
    offsets = groups.share_offsets

    def handle_delete_share_group_offsets(
        context: RequestContext, request: DeleteShareGroupOffsetsRequest
    ) -> DeleteShareGroupOffsetsResponse | None:
        if not cluster.image.features.has_share_groups:
            return failed_deletion(_UNSUPPORTED)
        context.in_slices(offsets.delete(request, context.respond))
        return None

    return handle_delete_share_group_offsets
