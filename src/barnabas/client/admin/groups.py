"""Groups of all types: list and delete them, change their offsets, and remove classic members.

Sources: KIP-222, KIP-496, KIP-518, KIP-848; KIP-345, KIP-571 (removal of members).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.cluster import broker_ids
from barnabas.client.admin.group_descriptions import describe_groups
from barnabas.client.admin.sender import (
    AdminCall,
    CoordinatorOf,
    checked,
    each_partition,
    errors_by_name,
    fixed_call,
    names_of,
    raise_error,
)
from barnabas.client.connections.versions import OFFSET_COMMIT_MAX_BY_NAME
from barnabas.client.errors import BrokerError, ClientError, error_or_none
from barnabas.client.group.group_offsets import CommittedOffset, commit_request, offsets_of
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.topic_partition import K, TopicPartition, as_partitions, by_topic
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.client.admin.sender import AdminSender, Plan
    from barnabas.client.retries import OnDone
    from barnabas.protocol.schema import Message


__all__ = ["MemberToRemove"]

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


def list_groups(
    sender: AdminSender, states: Sequence[str] = (), types: Sequence[str] = ()
) -> Plan[list[GroupListing]]:
    """List all groups of the cluster, ordered by name.

    A group must be in one of `states` and have one of `types`; an empty filter accepts all.
    """

    def build(version: int) -> Message:
        request = ListGroupsRequest()
        if version >= _STATES_FROM:
            request.states_filter = list(states)
        if version >= _TYPES_FROM:
            request.types_filter = list(types)
        return request

    def read(response: ListGroupsResponse) -> list[GroupListing]:
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

    call = AdminCall(ApiKey.LIST_GROUPS, build, read)
    results = yield from sender.send_to_brokers(lambda: broker_ids(sender), call)
    by_name = {group.group_id: group for result in results.values() for group in result}
    return [by_name[name] for name in sorted(by_name)]


def delete_groups(
    sender: AdminSender, names: Iterable[str], *, raise_errors: bool = True
) -> Plan[dict[str, bool | ClientError]]:
    """Delete groups without members.

    Returns:
        True or an error for each group.

    Raises:
        AdminResultsError: a group was not deleted; not raised with `raise_errors=False`.
    """

    def read(response: DeleteGroupsResponse) -> dict[str, bool | ClientError]:
        return {
            result.group_id: error_or_none(
                result.error_code,
                f"delete group {result.group_id}",
                _advice(result.error_code) or result.error_message,
            )
            or True
            for result in response.results
        }

    def call_for(groups: list[str]) -> AdminCall[dict[str, bool | ClientError]]:
        return fixed_call(DeleteGroupsRequest(groups_names=groups), read)

    return checked(
        sender.send_to_coordinators(names_of(names), call_for), raise_errors=raise_errors
    )


def alter_group_offsets(
    sender: AdminSender,
    group: str,
    offsets: Mapping[K, int | CommittedOffset],
    *,
    raise_errors: bool = True,
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Set the committed offsets of a group without members.

    A group with members refuses the change: each partition gets UNKNOWN_MEMBER_ID.

    Returns:
        An error or None for each partition.

    Raises:
        AdminResultsError: a partition failed; not raised with `raise_errors=False`.
    """

    def read(response: OffsetCommitResponse) -> dict[TopicPartition, BrokerError | None]:
        results = each_partition((t.name, t.partitions) for t in response.topics)
        advised = ((tp, each.error_code, _advice(each.error_code)) for tp, each in results)
        return errors_by_name(f"commit in group {group} of", advised)

    request = commit_request(GroupGeneration(group), offsets_of(offsets), {})
    call = fixed_call(request, read, OFFSET_COMMIT_MAX_BY_NAME)
    return checked(sender.send(CoordinatorOf(group), call), raise_errors=raise_errors)


def delete_offsets(
    sender: AdminSender, group: str, wanted: Sequence[tuple[str, int]], *, raise_errors: bool = True
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Delete committed offsets of a group; its members must not be subscribed to the topics.

    Returns:
        An error or None for each partition.

    Raises:
        AdminResultsError: a partition failed; not raised with `raise_errors=False`.
    """
    topics = by_topic(
        (tp, OffsetDeleteRequestPartition(partition_index=tp.partition))
        for tp in as_partitions(wanted)
    )
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[OffsetDeleteRequestTopic(name=n, partitions=p) for n, p in topics.items()],
    )

    def read(response: OffsetDeleteResponse) -> dict[TopicPartition, BrokerError | None]:
        raise_error(response.error_code, f"offsets of group {group}", _advice(response.error_code))
        return {
            tp: error_or_none(
                each.error_code, f"offset of {tp} in group {group}", _advice(each.error_code)
            )
            for tp, each in each_partition((t.name, t.partitions) for t in response.topics)
        }

    call = fixed_call(request, read)
    return checked(sender.send(CoordinatorOf(group), call), raise_errors=raise_errors)


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
    sender: AdminSender,
    group: str,
    members: Sequence[MemberToRemove] | None = None,
    *,
    reason: str = "removed by an administrator",
    raise_errors: bool = True,
) -> Plan[dict[MemberToRemove, BrokerError | None]]:
    """Remove members from a classic group; None means all members (KIP-345, KIP-571).

    Returns:
        An error or None for each member.

    Raises:
        AdminResultsError: a member was not removed; not raised with `raise_errors=False`.
    """
    wanted = members
    if wanted is None:
        described = (yield from describe_groups(sender, [group]))[group]
        if isinstance(described, ClientError):
            raise described
        wanted = [MemberToRemove(each.member_id, each.instance_id) for each in described.members]
    if not wanted:
        return {}

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
                for each in wanted
            ],
        )

    def read(response: LeaveGroupResponse) -> dict[MemberToRemove, BrokerError | None]:
        raise_error(response.error_code, f"members of group {group}")
        return {
            member: error_or_none(
                result.error_code,
                f"member {member.instance_id or member.member_id} of group {group}",
            )
            for member, result in zip(wanted, response.members, strict=True)
        }

    call = AdminCall(ApiKey.LEAVE_GROUP, build, read)
    return (yield from checked(sender.send(CoordinatorOf(group), call), raise_errors=raise_errors))


def coordinators(sender: AdminSender, names: Iterable[str]) -> Plan[dict[str, int | ClientError]]:
    """Return the node id of the coordinator, or an error, for each group."""
    return sender.coordinators(names_of(names))


def list_group_offsets(
    sender: AdminSender, names: Iterable[str]
) -> Plan[dict[str, dict[TopicPartition, CommittedOffset] | ClientError]]:
    """List the committed offsets of groups; partitions without one are omitted.

    With `isolation.level=read_committed` the call waits for open transactions that commit offsets.

    Returns:
        The offsets by partition, or an error, for each group.
    """

    def reading(group: str) -> Callable[[OnDone[dict[TopicPartition, CommittedOffset]]], None]:
        timeout_ms = sender.cluster.config.default_api_timeout_ms
        return lambda done: sender.group_offsets.committed(group, None, timeout_ms, done)

    found: dict[str, dict[TopicPartition, CommittedOffset] | ClientError]
    found = yield {name: reading(name) for name in names_of(names)}
    return found
