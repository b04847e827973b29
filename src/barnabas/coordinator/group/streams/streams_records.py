"""Encodes streams groups as records of `__consumer_offsets` (StreamsCoordinatorRecordHelpers)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.records.streams_group_current_member_assignment import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    TaskIds as CurrentTaskIds,
)
from barnabas.protocol.records.streams_group_member_metadata import (
    Endpoint,
    KeyValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
)
from barnabas.protocol.records.streams_group_metadata import (
    LastAssignmentConfig,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)
from barnabas.protocol.records.streams_group_target_assignment_member import (
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    TaskIds,
)
from barnabas.protocol.records.streams_group_target_assignment_metadata import (
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
)
from barnabas.protocol.records.streams_group_topology import StreamsGroupTopologyKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.coordinator.group.streams.members.owned_tasks import ActiveTasks
    from barnabas.coordinator.group.streams.members.streams_member import StreamsMember
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.coordinator.group.streams.tasks import MemberTasks, Tasks
    from barnabas.protocol.records.streams_group_topology import StreamsGroupTopologyValue

_MEMBER_KEYS = (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupMemberMetadataKey,
)
_GROUP_KEYS = (
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTopologyKey,
)


def epoch_record(
    group: StreamsGroup,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    configs: Mapping[str, str],
) -> CoordinatorRecord:
    """Return the record of the group epoch and of what it depends on."""
    stored, failed = group.description_epochs
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[
            LastAssignmentConfig(key=key, value=config) for key, config in sorted(configs.items())
        ],
        stored_description_topology_epoch=stored,
        failed_description_topology_epoch=failed,
    )
    return CoordinatorRecord.of(StreamsGroupMetadataKey(group_id=group.group_id), value)


def topology_record(group_id: str, value: StreamsGroupTopologyValue) -> CoordinatorRecord:
    """Return the record of the topology."""
    return CoordinatorRecord.of(StreamsGroupTopologyKey(group_id=group_id), value)


def member_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """Return the record of a member's identity and configuration."""
    key = StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    endpoint = member.user_endpoint
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if endpoint is None
        else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[
            KeyValue(key=key, value=tag) for key, tag in sorted(member.client_tags.items())
        ],
    )
    return CoordinatorRecord.of(key, value)


def target_epoch_record(group_id: str, epoch: int, timestamp: int) -> CoordinatorRecord:
    """Return the record of the epoch of the target assignment, and when it was computed."""
    value = StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp
    )
    return CoordinatorRecord.of(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: MemberTasks) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    key = StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_target_tasks(target.active),
        standby_tasks=_target_tasks(target.standby) if target.standby else [],
        warmup_tasks=_target_tasks(target.warmup) if target.warmup else [],
    )
    return CoordinatorRecord.of(key, value)


def _target_tasks(tasks: Tasks) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=each, partitions=sorted(indexes))
        for each, indexes in sorted(tasks.items())
    ]


def current_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """Return the record of a member's epoch, state and tasks."""
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    assigned, pending = member.assigned, member.pending_revocation
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state.value,
        active_tasks=_active_tasks(assigned.active),
        standby_tasks=_current_tasks(assigned.standby) if assigned.standby else [],
        warmup_tasks=_current_tasks(assigned.warmup) if assigned.warmup else [],
        active_tasks_pending_revocation=_active_tasks(pending.active) if pending.active else [],
        standby_tasks_pending_revocation=_current_tasks(pending.standby) if pending.standby else [],
        warmup_tasks_pending_revocation=_current_tasks(pending.warmup) if pending.warmup else [],
    )
    return CoordinatorRecord.of(key, value)


def _active_tasks(active: ActiveTasks) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(
            subtopology_id=each,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[index] for index in sorted(epochs)],
        )
        for each, epochs in sorted(active.items())
    ]


def _current_tasks(tasks: Tasks) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(subtopology_id=each, partitions=sorted(indexes))
        for each, indexes in sorted(tasks.items())
    ]


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the records that remove a member, in the order that replay expects."""
    return CoordinatorRecord.tombstones(_MEMBER_KEYS, group_id=group_id, member_id=member_id)


def group_tombstones(group: StreamsGroup) -> list[CoordinatorRecord]:
    """Return the records that remove a group without members, in Kafka's order."""
    assert not group.members, f"group={group.group_id} members={len(group.members)}"
    return CoordinatorRecord.tombstones(_GROUP_KEYS, group_id=group.group_id)
