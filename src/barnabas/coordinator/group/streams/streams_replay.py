"""The replay of the records of streams groups; `streams_records` encodes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.coordinator.group.records import (
    RecordReplay,
    put_target_epoch,
    remove_member,
    remove_target,
    remove_target_epoch,
)
from barnabas.coordinator.group.replayed_group import NO_EPOCH
from barnabas.coordinator.group.streams.members.owned_tasks import NO_OWNED_TASKS, OwnedTasks
from barnabas.coordinator.group.streams.members.streams_member import StreamsMember, UserEndpoint
from barnabas.coordinator.group.streams.members.streams_member_state import StreamsMemberState
from barnabas.coordinator.group.streams.streams_topology import StreamsTopology
from barnabas.coordinator.group.streams.tasks import MemberTasks
from barnabas.protocol.records.streams_group_current_member_assignment import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from barnabas.protocol.records.streams_group_member_metadata import (
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
)
from barnabas.protocol.records.streams_group_metadata import (
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)
from barnabas.protocol.records.streams_group_target_assignment_member import (
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
)
from barnabas.protocol.records.streams_group_target_assignment_metadata import (
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
)
from barnabas.protocol.records.streams_group_topology import (
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

if TYPE_CHECKING:
    from typing import Any

    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.coordinator.group.streams.tasks import Tasks
    from barnabas.protocol.records.streams_group_current_member_assignment import (
        TaskIds as CurrentTaskIds,
    )
    from barnabas.protocol.records.streams_group_target_assignment_member import TaskIds


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


def _remove_current(group: StreamsGroup, key: StreamsGroupCurrentMemberAssignmentKey) -> None:
    known = group.members.get(key.member_id)
    if known is not None:
        group.put(
            replace(
                known,
                member_epoch=NO_EPOCH,
                previous_member_epoch=NO_EPOCH,
                assigned=NO_OWNED_TASKS,
                pending_revocation=NO_OWNED_TASKS,
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
    return OwnedTasks(_active_tasks(active, epoch), _tasks(standby), _tasks(warmup))


def _tasks(tasks: list[TaskIds] | list[CurrentTaskIds]) -> Tasks:
    return {each.subtopology_id: frozenset(each.partitions) for each in tasks if each.partitions}


def _active_tasks(tasks: list[CurrentTaskIds], epoch: int) -> dict[str, dict[int, int]]:
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
    RecordReplay(StreamsGroupMetadataKey, StreamsGroupMetadataValue, _put_epoch),
    RecordReplay(
        StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue, _put_member, remove_member
    ),
    RecordReplay(
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupTargetAssignmentMetadataValue,
        put_target_epoch,
        remove_target_epoch,
    ),
    RecordReplay(
        StreamsGroupTargetAssignmentMemberKey,
        StreamsGroupTargetAssignmentMemberValue,
        _put_target,
        remove_target,
    ),
    RecordReplay(
        StreamsGroupCurrentMemberAssignmentKey,
        StreamsGroupCurrentMemberAssignmentValue,
        _put_current,
        _remove_current,
    ),
    RecordReplay(
        StreamsGroupTopologyKey, StreamsGroupTopologyValue, _put_topology, _remove_topology
    ),
)
