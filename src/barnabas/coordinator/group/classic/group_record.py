"""Encodes and decodes classic groups as records of `__consumer_offsets` (Kafka: GroupMetadata)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from barnabas.coordinator.group.classic.classic_member import (
    ClassicMember,
    MemberIdentity,
    MemberTimes,
)
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.record_frame import decode_coordinator_key, decode_coordinator_value
from barnabas.protocol.records.classic_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.coordinator.group.group_base import GroupMemory
    from barnabas.coordinator.group.group_map import GroupMap

# The version that Kafka 4.4 writes.
_VERSION = 3
_NOT_GIVEN = -1


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """Return the record of a group in its current generation, with the members' assignments."""
    protocol = group.protocol_name
    members = [
        MemberMetadata(
            member_id=member.id,
            group_instance_id=member.identity.group_instance_id,
            client_id=member.identity.client_id,
            client_host=member.identity.client_host,
            rebalance_timeout=member.times.rebalance_timeout_ms,
            session_timeout=member.times.session_timeout_ms,
            subscription=member.protocols[protocol],
            assignment=assignments[member.id],
        )
        for member in group.members.values()
        if protocol is not None
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=protocol,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp,
        members=members,
    )
    return CoordinatorRecord.of(GroupMetadataKey(group=group.group_id), value, _VERSION)


def new_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """Return the record of a new group without members."""
    value = GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=group.state_timestamp,
        members=[],
    )
    return CoordinatorRecord.of(GroupMetadataKey(group=group.group_id), value, _VERSION)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the record that removes a group."""
    return CoordinatorRecord.of(GroupMetadataKey(group=group_id), None)


def replay_classic(groups: GroupMap, key: bytes, value: bytes | None) -> None:
    """Apply the record of a classic group. Raises ProtocolError.

    The group takes the place of a group of another kind.
    """
    group_id = decode_coordinator_key(GroupMetadataKey, key).group
    known = groups.find(group_id)
    if value is None:
        if isinstance(known, ClassicGroup):
            groups.remove(known)
        return
    try:
        groups.replace(group_of(group_id, value, groups.memory))
    except ProtocolError:
        # The members of the generation are unknown. Keep the group without members and with its
        # offsets, so that live members can rejoin.
        if known is not None:
            groups.remove(known)
        groups.add(empty_group(group_id, groups))
        raise


def empty_group(group_id: str, groups: GroupMap) -> ClassicGroup:
    """Return a new group without members, which is not in the map yet."""
    return ClassicGroup(group_id, GroupState.EMPTY, groups.clock.wall_ms(), groups.memory)


def group_of(group_id: str, value: bytes, memory: GroupMemory) -> ClassicGroup:
    """Return the group of a record.

    Raises:
        ProtocolError: the record is unreadable or inconsistent.
    """
    record = decode_coordinator_value(GroupMetadataValue, value)
    _check(record)
    state = GroupState.STABLE if record.members else GroupState.EMPTY
    group = ClassicGroup(group_id, state, record.current_state_timestamp, memory)
    group.generation_id = record.generation
    group.protocol_type = record.protocol_type or None
    group.protocol_name = record.protocol
    # Without members there must be no leader, since it would never be replaced.
    group.leader_id = record.leader if record.members else None
    for member in record.members:
        group.add(_member_of(record, member))
    group.compute_subscribed_topics()
    return group


def _check(record: GroupMetadataValue) -> None:
    """Reject records that no coordinator writes, since a client may write to the topic."""
    members = record.members
    ids = {each.member_id for each in members}
    instance_ids = [
        each.group_instance_id for each in members if each.group_instance_id is not None
    ]
    if record.generation < 0:
        raise ProtocolError(f"the group's generation is {record.generation}")
    if len(ids) < len(members):
        raise ProtocolError("two members have the same member id")
    if len(set(instance_ids)) < len(instance_ids):
        raise ProtocolError("two members have the same group instance id")
    if members and record.protocol is None:
        raise ProtocolError(f"{len(members)} members have no protocol")
    if members and record.leader is not None and record.leader not in ids:
        raise ProtocolError(f"the leader {record.leader!r} is not a member")
    for each in members:
        if each.session_timeout < 0 or each.rebalance_timeout < _NOT_GIVEN:
            raise ProtocolError(
                f"member {each.member_id!r} has a session timeout of {each.session_timeout} ms"
                f" and a rebalance timeout of {each.rebalance_timeout} ms"
            )


def _member_of(record: GroupMetadataValue, member: MemberMetadata) -> ClassicMember:
    rebalance_timeout_ms = member.rebalance_timeout
    if rebalance_timeout_ms == _NOT_GIVEN:
        rebalance_timeout_ms = member.session_timeout
    identity = MemberIdentity(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        record.protocol_type,
    )
    times = MemberTimes(member.session_timeout, rebalance_timeout_ms)
    # The record has only the selected protocol. The member sends the others when it rejoins.
    return ClassicMember(
        identity, times, {record.protocol or "": member.subscription}, member.assignment
    )
