"""Describes the groups of Kafka Streams applications (KIP-1071)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall
from barnabas.client.admin.groups import GroupDescription, GroupMember
from barnabas.client.errors import ClientError, broker_error
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TaskIds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.schema import Message

__all__ = ["StreamsGroupDescription", "StreamsMember", "StreamsTasks", "Subtopology", "as_group"]

# Id of the subtopology, and partition.
Task = tuple[str, int]


@dataclass(frozen=True, slots=True)
class StreamsTasks:
    """The tasks of a member, by role."""

    active: tuple[Task, ...]
    standby: tuple[Task, ...]
    warmup: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """One member of a streams group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    process_id: str
    epoch: int
    topology_epoch: int
    assignment: StreamsTasks
    target: StreamsTasks


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of the topology whose tasks are assigned together."""

    id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[str, ...]
    changelog_topics: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics that it reads."""
        return self.source_topics + self.repartition_source_topics


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    """A streams group as its coordinator describes it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    # -1, and no subtopologies, until a member has sent the topology.
    topology_epoch: int
    subtopologies: tuple[Subtopology, ...]
    members: tuple[StreamsMember, ...]


def describe_streams_groups(
    groups: Sequence[str],
) -> AdminCall[dict[str, StreamsGroupDescription | ClientError]]:
    """Describe streams groups with their members; other groups get GROUP_ID_NOT_FOUND."""

    def build(_version: int) -> Message:
        return StreamsGroupDescribeRequest(
            group_ids=list(groups), include_authorized_operations=False
        )

    def read(response: Message) -> dict[str, StreamsGroupDescription | ClientError]:
        assert isinstance(response, StreamsGroupDescribeResponse)
        return {group.group_id: _group(group) for group in response.groups}

    return AdminCall(ApiKey.STREAMS_GROUP_DESCRIBE, build, read)


def as_group(group: StreamsGroupDescription) -> GroupDescription:
    """Return the group with the partitions of its active tasks, like a consumer group.

    A task reads its partition of all topics of its subtopology. Topics with fewer partitions do not
    have that partition.
    """
    inputs = {each.id: each.inputs for each in group.subtopologies}
    topics = tuple(sorted({topic for names in inputs.values() for topic in names}))

    def partitions(tasks: StreamsTasks) -> tuple[TopicPartition, ...]:
        return tuple(
            sorted(
                TopicPartition(topic, number)
                for subtopology, number in tasks.active
                for topic in inputs.get(subtopology, ())
            )
        )

    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.host,
            topics,
            partitions(member.assignment),
            partitions(member.target),
            member.epoch,
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id, "streams", group.state, "streams", "", members, group.epoch
    )


def _group(group: DescribedGroup) -> StreamsGroupDescription | ClientError:
    if group.error_code:
        return broker_error(group.error_code, f"group {group.group_id}", group.error_message)
    topology = group.topology
    subtopologies = (topology.subtopologies or []) if topology is not None else []
    return StreamsGroupDescription(
        group.group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        topology.epoch if topology is not None else -1,
        tuple(
            Subtopology(
                each.subtopology_id,
                tuple(each.source_topics),
                tuple(each.repartition_sink_topics),
                tuple(topic.name for topic in each.repartition_source_topics),
                tuple(topic.name for topic in each.state_changelog_topics),
            )
            for each in subtopologies
        ),
        tuple(
            StreamsMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host.removeprefix("/"),
                member.process_id,
                member.member_epoch,
                member.topology_epoch,
                _tasks(member.assignment),
                _tasks(member.target_assignment),
            )
            for member in group.members
        ),
    )


def _tasks(assignment: Assignment) -> StreamsTasks:
    return StreamsTasks(
        _numbered(assignment.active_tasks),
        _numbered(assignment.standby_tasks),
        _numbered(assignment.warmup_tasks),
    )


def _numbered(tasks: Sequence[TaskIds]) -> tuple[Task, ...]:
    return tuple((each.subtopology_id, number) for each in tasks for number in each.partitions)
