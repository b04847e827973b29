"""Groups: list, describe and delete them, their offsets, and members of classic groups.

Sources: KIP-222, KIP-496, KIP-518, KIP-848; KIP-345, KIP-571 (removal of members).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.call import AdminCall, errors_by_name, raise_error
from barnabas.client.connections.versions import OFFSET_COMMIT_MAX_BY_NAME
from barnabas.client.errors import BrokerError, ClientError, broker_error
from barnabas.client.group.group_offsets import CommittedOffset, commit_request
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.topic_partition import TopicPartition, by_topic
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.codec import decode
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup as DescribedConsumerGroup,
)
from barnabas.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
)
from barnabas.protocol.records.classic_groups import ConsumerProtocolSubscription
from barnabas.protocol.records.consumer_protocol_assignment import ConsumerProtocolAssignment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.protocol.schema import Message

__all__ = ["GroupDescription", "GroupMember", "MemberToRemove", "describe_classic_groups"]

# Newest version of the consumer protocol's payloads.
_CONSUMER_PROTOCOL_MAX = 3
_STATES_FROM = 4
_TYPES_FROM = 5
# Earlier versions let a member only remove itself.
_MANY_FROM = 3


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in the result of ListGroups; fields that an old broker does not send are empty."""

    group_id: str
    protocol_type: str
    state: str = ""
    type: str = ""


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


def list_groups(states: Sequence[str], types: Sequence[str]) -> AdminCall[list[GroupListing]]:
    """List the groups that one broker coordinates; an empty filter accepts all."""

    def build(version: int) -> Message:
        request = ListGroupsRequest()
        if version >= _STATES_FROM:
            request.states_filter = list(states)
        if version >= _TYPES_FROM:
            request.types_filter = list(types)
        return request

    def read(response: Message) -> list[GroupListing]:
        assert isinstance(response, ListGroupsResponse)
        raise_error(response.error_code, "list of groups")
        found = [
            GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type)
            for g in response.groups
        ]
        # Brokers that are too old for the filters return all groups.
        wanted_states = {state.lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        return [
            group
            for group in found
            if (not wanted_states or not group.state or group.state.lower() in wanted_states)
            and (not wanted_types or not group.type or group.type.lower() in wanted_types)
        ]

    return AdminCall(ApiKey.LIST_GROUPS, build, read)


def describe_classic_groups(
    groups: Sequence[str],
) -> AdminCall[dict[str, GroupDescription | ClientError]]:
    """Describe classic groups with their members; the state of a missing group is "Dead"."""

    def build(_version: int) -> Message:
        return DescribeGroupsRequest(groups=list(groups))

    def read(response: Message) -> dict[str, GroupDescription | ClientError]:
        assert isinstance(response, DescribeGroupsResponse)
        return {group.group_id: _classic(group) for group in response.groups}

    return AdminCall(ApiKey.DESCRIBE_GROUPS, build, read)


def _classic(group: DescribedGroup) -> GroupDescription | ClientError:
    # From version 6 on, a missing group is an error; before, it was a state (KIP-1043).
    if group.error_code and group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        return broker_error(group.error_code, f"group {group.group_id}", group.error_message)
    is_consumer = group.protocol_type == "consumer"
    return GroupDescription(
        group.group_id,
        "classic",
        group.group_state or "Dead",
        group.protocol_type,
        group.protocol_data,
        tuple(_classic_member(member, is_consumer=is_consumer) for member in group.members),
    )


def _classic_member(member: DescribedGroupMember, *, is_consumer: bool) -> GroupMember:
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


def describe_consumer_groups(
    groups: Sequence[str],
) -> AdminCall[dict[str, GroupDescription | ClientError]]:
    """Describe groups of the new protocol; other groups get GROUP_ID_NOT_FOUND."""

    def build(_version: int) -> Message:
        return ConsumerGroupDescribeRequest(
            group_ids=list(groups), include_authorized_operations=False
        )

    def read(response: Message) -> dict[str, GroupDescription | ClientError]:
        assert isinstance(response, ConsumerGroupDescribeResponse)
        return {group.group_id: _consumer(group) for group in response.groups}

    return AdminCall(ApiKey.CONSUMER_GROUP_DESCRIBE, build, read)


def _consumer(group: DescribedConsumerGroup) -> GroupDescription | ClientError:
    if group.error_code:
        return broker_error(group.error_code, f"group {group.group_id}", group.error_message)
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            tuple(sorted(member.subscribed_topic_names)),
            _partitions(member.assignment),
            _partitions(member.target_assignment),
            member.member_epoch,
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id,
        "consumer",
        group.group_state,
        "consumer",
        group.assignor_name,
        members,
        group.group_epoch,
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def delete_groups(groups: Sequence[str]) -> AdminCall[dict[str, bool | ClientError]]:
    """Delete groups without members; return True or an error for each."""

    def build(_version: int) -> Message:
        return DeleteGroupsRequest(groups_names=list(groups))

    def read(response: Message) -> dict[str, bool | ClientError]:
        assert isinstance(response, DeleteGroupsResponse)
        found: dict[str, bool | ClientError] = {}
        for result in response.results:
            found[result.group_id] = True
            if result.error_code:
                subject = f"delete group {result.group_id}"
                detail = _advice(result.error_code) or result.error_message
                found[result.group_id] = broker_error(result.error_code, subject, detail)
        return found

    return AdminCall(ApiKey.DELETE_GROUPS, build, read)


def alter_offsets(
    group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> AdminCall[dict[TopicPartition, BrokerError | None]]:
    """Commit offsets for a group without members; return an error or None for each partition."""

    def build(_version: int) -> Message:
        return commit_request(GroupGeneration(group), offsets, {})

    def read(response: Message) -> dict[TopicPartition, BrokerError | None]:
        assert isinstance(response, OffsetCommitResponse)
        results = (
            (TopicPartition(topic.name, each.partition_index), each.error_code)
            for topic in response.topics
            for each in topic.partitions
        )
        advised = ((tp, code, _advice(code)) for tp, code in results)
        return errors_by_name(f"commit in group {group} of", advised)

    return AdminCall(ApiKey.OFFSET_COMMIT, build, read, OFFSET_COMMIT_MAX_BY_NAME)


def delete_offsets(
    group: str, partitions: Sequence[TopicPartition]
) -> AdminCall[dict[TopicPartition, BrokerError | None]]:
    """Delete committed offsets of a group; return an error or None for each partition."""

    def build(_version: int) -> Message:
        topics = by_topic(
            (tp, OffsetDeleteRequestPartition(partition_index=tp.partition)) for tp in partitions
        )
        return OffsetDeleteRequest(
            group_id=group,
            topics=[OffsetDeleteRequestTopic(name=n, partitions=p) for n, p in topics.items()],
        )

    def read(response: Message) -> dict[TopicPartition, BrokerError | None]:
        assert isinstance(response, OffsetDeleteResponse)
        raise_error(response.error_code, f"offsets of group {group}", _advice(response.error_code))
        found: dict[TopicPartition, BrokerError | None] = {}
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                code = partition.error_code
                subject = f"offset of {tp} in group {group}"
                found[tp] = broker_error(code, subject, _advice(code)) if code else None
        return found

    return AdminCall(ApiKey.OFFSET_DELETE, build, read)


def _advice(code: int) -> str | None:
    return {
        int(ErrorCode.NON_EMPTY_GROUP): "the group has members: stop them first",
        int(ErrorCode.UNKNOWN_MEMBER_ID): "the group has members: stop them first",
        int(ErrorCode.GROUP_ID_NOT_FOUND): "there is no such group; `barnabas groups list`",
        int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC): "members of the group read the topic: stop them",
    }.get(code)


class MemberToRemove(NamedTuple):
    """Names a member by its member id, or a static member by its instance id."""

    member_id: str = ""
    instance_id: str | None = None


def remove_members(
    group: str, members: Sequence[MemberToRemove], reason: str
) -> AdminCall[dict[MemberToRemove, BrokerError | None]]:
    """Remove members; return an error or None for each."""

    def build(version: int) -> Message:
        if version < _MANY_FROM:
            raise ProtocolError("requests before version 3 cannot remove other members")
        return LeaveGroupRequest(
            group_id=group,
            members=[
                # A static member is identified by its instance id only.
                MemberIdentity(
                    member_id="" if each.instance_id is not None else each.member_id,
                    group_instance_id=each.instance_id,
                    reason=reason,
                )
                for each in members
            ],
        )

    def read(response: Message) -> dict[MemberToRemove, BrokerError | None]:
        assert isinstance(response, LeaveGroupResponse)
        raise_error(response.error_code, f"members of group {group}")
        found: dict[MemberToRemove, BrokerError | None] = {}
        for member, result in zip(members, response.members, strict=True):
            subject = f"member {member.instance_id or member.member_id} of group {group}"
            code = result.error_code
            found[member] = broker_error(code, subject) if code else None
        return found

    return AdminCall(ApiKey.LEAVE_GROUP, build, read)
