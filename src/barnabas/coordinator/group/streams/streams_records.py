"""Records of streams groups: how they are encoded, and what their replay changes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.coordinator.group.replayed_group import (
    KindRecords,
    RecordReplay,
    remove_current,
    tombstones_without_members,
)
from barnabas.coordinator.group.streams.task_assignors import MemberTasks, task_lists
from barnabas.coordinator.group.streams.task_reconciliation import (
    NO_OWNED_TASKS,
    OwnedTasks,
    StreamsMember,
    StreamsMemberState,
    UserEndpoint,
)
from barnabas.coordinator.group.streams.topology import StreamsTopology
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.records.streams_group_current_member_assignment import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    TaskIds as CurrentTaskIds,
)
from barnabas.protocol.records.streams_groups import (
    Endpoint,
    KeyValue,
    LastAssignmentConfig,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    TaskIds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.coordinator.group.streams.task_assignors import Tasks
    from barnabas.coordinator.group.streams.task_reconciliation import ActiveTasks


_RECORDS = KindRecords(
    epoch=(StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    member=(StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    target_epoch=(
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupTargetAssignmentMetadataValue,
    ),
    target=(StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    current=(StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
)
target_epoch_record = _RECORDS.target_epoch_record
member_tombstones = _RECORDS.member_tombstones
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


def target_record(group_id: str, member_id: str, target: MemberTasks) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    key = StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=task_lists(TaskIds, target.active),
        standby_tasks=task_lists(TaskIds, target.standby),
        warmup_tasks=task_lists(TaskIds, target.warmup),
    )
    return CoordinatorRecord.of(key, value)


def current_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """Return the record of a member's epoch, state and tasks."""
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    assigned, pending = member.assigned, member.pending_revocation
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state.value,
        active_tasks=_active_tasks(assigned.active),
        standby_tasks=task_lists(CurrentTaskIds, assigned.standby),
        warmup_tasks=task_lists(CurrentTaskIds, assigned.warmup),
        active_tasks_pending_revocation=_active_tasks(pending.active) if pending.active else [],
        standby_tasks_pending_revocation=task_lists(CurrentTaskIds, pending.standby)
        if pending.standby
        else [],
        warmup_tasks_pending_revocation=task_lists(CurrentTaskIds, pending.warmup)
        if pending.warmup
        else [],
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


group_tombstones = partial(tombstones_without_members, _GROUP_KEYS)


def _put_epoch(
    group: StreamsGroup, _key: StreamsGroupMetadataKey, record: StreamsGroupMetadataValue
) -> None:
    group.group_epoch = record.epoch
    group.metadata_hash = record.metadata_hash
    group.validated_topology_epoch = record.validated_topology_epoch
    group.assignment_configs = {
        each.key: each.value for each in record.last_assignment_configs or ()
    }
    group.description_epochs = (
        record.stored_description_topology_epoch,
        record.failed_description_topology_epoch,
    )


def _put_topology(
    group: StreamsGroup, _key: StreamsGroupTopologyKey, record: StreamsGroupTopologyValue
) -> None:
    group.topology = StreamsTopology(record)


def _remove_topology(group: StreamsGroup, _key: StreamsGroupTopologyKey) -> None:
    group.topology = None


def _put_member(
    group: StreamsGroup,
    key: StreamsGroupMemberMetadataKey,
    record: StreamsGroupMemberMetadataValue,
) -> None:
    endpoint = record.user_endpoint
    group.put(
        replace(
            group.members.get(key.member_id) or StreamsMember(key.member_id),
            instance_id=record.instance_id,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            topology_epoch=record.topology_epoch,
            process_id=record.process_id,
            user_endpoint=None if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
            client_tags={each.key: each.value for each in record.client_tags},
        )
    )


def _put_target(
    group: StreamsGroup,
    key: StreamsGroupTargetAssignmentMemberKey,
    record: StreamsGroupTargetAssignmentMemberValue,
) -> None:
    group.targets[key.member_id] = MemberTasks(
        active=_tasks(record.active_tasks),
        standby=_tasks(record.standby_tasks),
        warmup=_tasks(record.warmup_tasks),
    )


def _put_current(
    group: StreamsGroup,
    key: StreamsGroupCurrentMemberAssignmentKey,
    record: StreamsGroupCurrentMemberAssignmentValue,
) -> None:
    epoch = record.member_epoch
    group.put(
        replace(
            group.members.get(key.member_id) or StreamsMember(key.member_id),
            member_epoch=epoch,
            previous_member_epoch=record.previous_member_epoch,
            state=StreamsMemberState.of(record.state),
            assigned=_owned_tasks(
                record.active_tasks, record.standby_tasks, record.warmup_tasks, epoch
            ),
            pending_revocation=_owned_tasks(
                record.active_tasks_pending_revocation,
                record.standby_tasks_pending_revocation,
                record.warmup_tasks_pending_revocation,
                epoch,
            ),
        )
    )


def _owned_tasks(
    active: list[CurrentTaskIds],
    standby: list[CurrentTaskIds],
    warmup: list[CurrentTaskIds],
    epoch: int,
) -> OwnedTasks:
    if not (active or standby or warmup):
        return NO_OWNED_TASKS
    return OwnedTasks(_read_active_tasks(active, epoch), _tasks(standby), _tasks(warmup))


def _tasks(tasks: list[TaskIds] | list[CurrentTaskIds]) -> Tasks:
    return {each.subtopology_id: frozenset(each.partitions) for each in tasks if each.partitions}


def _read_active_tasks(tasks: list[CurrentTaskIds], epoch: int) -> dict[str, dict[int, int]]:
    """Return the active tasks. They have the member's epoch if the record has no epochs."""
    found: dict[str, dict[int, int]] = {}
    for each in tasks:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [epoch] * len(each.partitions)
        if each.partitions:
            found[each.subtopology_id] = dict(zip(each.partitions, epochs, strict=True))
    return found


STREAMS_REPLAYS: tuple[RecordReplay[StreamsGroup, Any, Any], ...] = (
    *_RECORDS.replays(
        _put_member,
        _put_current,
        partial(remove_current, nothing=NO_OWNED_TASKS),
        _put_epoch,
        _put_target,
    ),
    RecordReplay(
        StreamsGroupTopologyKey, StreamsGroupTopologyValue, _put_topology, _remove_topology
    ),
)
