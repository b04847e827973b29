"""Descriptions of groups of all types, with their members and tasks.

Sources: KIP-222, KIP-1043 (classic), KIP-848 (consumer), KIP-932 (share), KIP-1071 (streams).
Each type has its own request. A description of a group of unknown type tries one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.admin.sender import AdminCall, fixed_call, names_of
from barnabas.client.errors import (
    BrokerError,
    ClientError,
    UnsupportedVersionError,
    broker_error,
)
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.codec import decode
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages import (
    consumer_group_describe as consumer_groups,
    groups as classic_groups,
    streams_group_describe as streams_groups,
)
from barnabas.protocol.messages.share_groups import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
)
from barnabas.protocol.records.classic_groups import ConsumerProtocolSubscription
from barnabas.protocol.records.consumer_protocol_assignment import ConsumerProtocolAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.client.admin.sender import AdminSender, Plan
    from barnabas.protocol.schema import Message

__all__ = [
    "GroupDescription",
    "GroupMember",
    "StreamsGroupDescription",
    "StreamsMember",
    "StreamsTasks",
    "Subtopology",
    "as_group",
]

T = TypeVar("T")
# Newest version of the consumer protocol's payloads.
_CONSUMER_PROTOCOL_MAX = 3
# Errors of a request for a type that the group does not have, or the cluster does not support.
_NO_SUCH_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
# Id of the subtopology, and partition.
Task = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group, with its subscription and assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    # Target assignment and member epoch of the new protocol (KIP-848); None and -1 in classic
    # groups.
    target: tuple[TopicPartition, ...] | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it."""

    group_id: str
    # "classic", "consumer" (KIP-848), "share" (KIP-932) or "streams" (KIP-1071).
    type: str
    # "Empty", "Stable", "PreparingRebalance", ...; "Dead" if the group does not exist.
    state: str
    protocol_type: str
    # The assignor or protocol that the members use; empty without members.
    protocol: str
    members: tuple[GroupMember, ...] = ()
    # Group epoch of the new protocols; -1 in classic groups.
    epoch: int = -1


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


def describe_groups(
    sender: AdminSender, names: Iterable[str], *, once: bool = False
) -> Plan[dict[str, GroupDescription | ClientError]]:
    """Describe groups of all types with their members; the state of a missing group is "Dead".

    The members of streams groups have the partitions of their active tasks.
    With `once` the plan makes one attempt, and retriable errors are results.
    """
    wanted = names_of(names)
    send = sender.send_to_coordinators
    found = yield from send(wanted, describe_consumer, once=once)
    classic = [name for name in wanted if _is_of_other_type(found[name])]
    found.update((yield from send(classic, describe_classic, once=once)))
    missing = [name for name in classic if _is_missing(found[name])]
    streams = yield from send(missing, describe_streams, once=once)
    for name, each in streams.items():
        if isinstance(each, StreamsGroupDescription):
            found[name] = as_group(each)
        elif not _is_of_other_type(each):
            found[name] = each
    missing = [name for name in missing if _is_missing(found[name])]
    shares = yield from send(missing, describe_share, once=once)
    for name, described in shares.items():
        if not _is_of_other_type(described):
            found[name] = described
    return found


def _is_missing(found: GroupDescription | ClientError) -> bool:
    """Whether there is no such classic group. Another kind of group may have the name."""
    return isinstance(found, GroupDescription) and found.state == "Dead"


def _is_of_other_type(found: object) -> bool:
    """Whether the result says that there is no group of this type.

    Other errors, such as those of rights, are results: the group may exist.
    """
    if isinstance(found, UnsupportedVersionError):
        return True
    return isinstance(found, BrokerError) and found.error_code in _NO_SUCH_GROUP


def describe_share_groups(
    sender: AdminSender, names: Iterable[str]
) -> Plan[dict[str, GroupDescription | ClientError]]:
    """Describe share groups with their members; other groups get GROUP_ID_NOT_FOUND."""
    return sender.send_to_coordinators(names_of(names), describe_share)


def describe_streams_groups(
    sender: AdminSender, names: Iterable[str]
) -> Plan[dict[str, StreamsGroupDescription | ClientError]]:
    """Describe streams groups with their tasks; other groups get GROUP_ID_NOT_FOUND."""
    return sender.send_to_coordinators(names_of(names), describe_streams)


def _describe_by(
    request: Callable[[list[str]], Message], convert: Callable[[Any], T], ignored: int = 0
) -> Callable[[list[str]], AdminCall[dict[str, T | ClientError]]]:
    """Return a function that makes the call for some groups.

    Args:
        request: Returns the request for these groups.
        convert: Converts a group in the response.
        ignored: The error code of groups that are converted nevertheless.
    """

    def read(response: Any) -> dict[str, T | ClientError]:
        return {
            group.group_id: convert(group)
            if group.error_code in {0, ignored}
            else broker_error(group.error_code, f"group {group.group_id}", group.error_message)
            for group in response.groups
        }

    return lambda groups: fixed_call(request(groups), read)


def _classic(group: classic_groups.DescribedGroup) -> GroupDescription:
    is_consumer = group.protocol_type == "consumer"
    return GroupDescription(
        group.group_id,
        "classic",
        group.group_state or "Dead",
        group.protocol_type,
        group.protocol_data,
        tuple(_classic_member(member, is_consumer=is_consumer) for member in group.members),
    )


def _classic_member(
    member: classic_groups.DescribedGroupMember, *, is_consumer: bool
) -> GroupMember:
    topics: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    if is_consumer:
        topics = _subscribed(member.member_metadata)
        assignment = _assigned(member.member_assignment)
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        topics,
        assignment,
    )


def _subscribed(payload: bytes) -> tuple[str, ...]:
    try:
        # Each version begins like version 0. Some clients write a version whose fields they omit.
        return tuple(sorted(decode(ConsumerProtocolSubscription, 0, payload, 2).topics))
    except ProtocolError:
        # Members choose their payload freely; an invalid one must not hide the rest of the group.
        return ()


def _assigned(payload: bytes) -> tuple[TopicPartition, ...]:
    if not payload:
        return ()
    try:
        version = int.from_bytes(payload[:2], "big")
        known = min(version, _CONSUMER_PROTOCOL_MAX)
        topics = decode(ConsumerProtocolAssignment, known, payload, 2).assigned_partitions
    except ProtocolError:
        return ()
    return tuple(sorted(TopicPartition(t.topic, number) for t in topics for number in t.partitions))


def _consumer_or_share(
    group: consumer_groups.DescribedGroup | DescribedGroup,
) -> GroupDescription:
    kind = "share" if isinstance(group, DescribedGroup) else "consumer"
    return GroupDescription(
        group_id=group.group_id,
        type=kind,
        state=group.group_state,
        protocol_type=kind,
        protocol=group.assignor_name,
        members=tuple(map(_member, group.members)),
        epoch=group.group_epoch,
    )


def _member(member: consumer_groups.Member | Member) -> GroupMember:
    instance_id, target = None, None
    if isinstance(member, consumer_groups.Member):
        instance_id, target = member.instance_id, _partitions(member.target_assignment)
    return GroupMember(
        member_id=member.member_id,
        instance_id=instance_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        topics=tuple(sorted(member.subscribed_topic_names)),
        assignment=_partitions(member.assignment),
        target=target,
        epoch=member.member_epoch,
    )


def _partitions(
    assignment: consumer_groups.Assignment | Assignment,
) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def _streams(group: streams_groups.DescribedGroup) -> StreamsGroupDescription:
    topology = group.topology
    subtopologies = (topology.subtopologies or []) if topology is not None else []
    return StreamsGroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology_epoch=topology.epoch if topology is not None else -1,
        subtopologies=tuple(
            Subtopology(
                each.subtopology_id,
                tuple(each.source_topics),
                tuple(each.repartition_sink_topics),
                tuple(topic.name for topic in each.repartition_source_topics),
                tuple(topic.name for topic in each.state_changelog_topics),
            )
            for each in subtopologies
        ),
        members=tuple(
            StreamsMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host.removeprefix("/"),
                process_id=member.process_id,
                epoch=member.member_epoch,
                topology_epoch=member.topology_epoch,
                assignment=_tasks(member.assignment),
                target=_tasks(member.target_assignment),
            )
            for member in group.members
        ),
    )


def _tasks(assignment: streams_groups.Assignment) -> StreamsTasks:
    return StreamsTasks(
        _numbered(assignment.active_tasks),
        _numbered(assignment.standby_tasks),
        _numbered(assignment.warmup_tasks),
    )


def _numbered(tasks: Sequence[streams_groups.TaskIds]) -> tuple[Task, ...]:
    return tuple((each.subtopology_id, number) for each in tasks for number in each.partitions)


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
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            host=member.host,
            topics=topics,
            assignment=partitions(member.assignment),
            target=partitions(member.target),
            epoch=member.epoch,
        )
        for member in group.members
    )
    return GroupDescription(
        group_id=group.group_id,
        type="streams",
        state=group.state,
        protocol_type="streams",
        protocol="",
        members=members,
        epoch=group.epoch,
    )


# The state of a missing classic group is "Dead". From version 6 on, it is an error (KIP-1043).
describe_classic = _describe_by(
    lambda groups: classic_groups.DescribeGroupsRequest(groups=groups),
    _classic,
    ignored=ErrorCode.GROUP_ID_NOT_FOUND,
)
# Groups of other types get GROUP_ID_NOT_FOUND.
describe_consumer = _describe_by(
    lambda groups: consumer_groups.ConsumerGroupDescribeRequest(
        group_ids=groups, include_authorized_operations=False
    ),
    _consumer_or_share,
)
describe_share = _describe_by(
    lambda groups: ShareGroupDescribeRequest(group_ids=groups, include_authorized_operations=False),
    _consumer_or_share,
)
describe_streams = _describe_by(
    lambda groups: streams_groups.StreamsGroupDescribeRequest(
        group_ids=groups, include_authorized_operations=False
    ),
    _streams,
)
