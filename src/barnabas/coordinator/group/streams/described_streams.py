"""The response of StreamsGroupDescribe for one group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.streams.members.member_offsets import MemberOffsets
from barnabas.coordinator.group.streams.streams_targets import ASSIGNOR
from barnabas.coordinator.group.streams.topology.described_topology import (
    described,
    described_value,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    TaskIds,
    TaskOffset,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.coordinator.group.streams.members.streams_member import StreamsMember
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.protocol.messages.streams_group_describe import Topology

# Values of `topology_description_status`.
NOT_REQUESTED = 0
NOT_STORED = 1


def describe_streams_group(group: StreamsGroup, *, includes_description: bool) -> DescribedGroup:
    """Return epochs, state, topology and members of a group.

    Args:
        group: the group.
        includes_description: whether the request asks for the description of the topology. Kafka
            has descriptions only with a plugin.
    """
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_described(group, member) for member in group.members.values()],
        topology_description_status=NOT_STORED if includes_description else NOT_REQUESTED,
        assignor_name=ASSIGNOR,
    )


def _topology(group: StreamsGroup) -> Topology | None:
    configured = group.configured
    if configured is not None and configured.is_ready:
        return described(configured)
    return None if group.topology is None else described_value(group.topology.value)


def _described(group: StreamsGroup, member: StreamsMember) -> Member:
    target = group.target_of(member.member_id)
    offsets = group.task_offsets.get(member.member_id, MemberOffsets())
    endpoint = member.user_endpoint
    assigned = member.assigned
    return Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if endpoint is None
        else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=tag) for key, tag in member.client_tags.items()],
        task_offsets=_offsets(offsets.offsets),
        task_end_offsets=_offsets(offsets.end_offsets),
        assignment=Assignment(
            active_tasks=_tasks(assigned.active),
            standby_tasks=_tasks(assigned.standby),
            warmup_tasks=_tasks(assigned.warmup),
        ),
        target_assignment=Assignment(
            active_tasks=_tasks(target.active),
            standby_tasks=_tasks(target.standby),
            warmup_tasks=_tasks(target.warmup),
        ),
        is_classic=False,
    )


def _tasks(tasks: Mapping[str, Iterable[int]]) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=each, partitions=sorted(indexes))
        for each, indexes in sorted(tasks.items())
    ]


def _offsets(offsets: Mapping[str, Mapping[int, int]]) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=each, partition=index, offset=offset)
        for each, partitions in sorted(offsets.items())
        for index, offset in sorted(partitions.items())
    ]
