"""The streams groups of one state partition, and the replay of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.coordinator.group.streams.members.owned_tasks import NO_OWNED_TASKS, OwnedTasks
from barnabas.coordinator.group.streams.members.streams_member import StreamsMember, UserEndpoint
from barnabas.coordinator.group.streams.members.streams_member_state import StreamsMemberState
from barnabas.coordinator.group.streams.streams_group import NO_EPOCH, StreamsGroup
from barnabas.coordinator.group.streams.streams_topology import StreamsTopology
from barnabas.coordinator.group.streams.tasks import MemberTasks
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.protocol.record_frame import decode_coordinator_key, decode_coordinator_value
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
    from collections.abc import Callable, Collection

    from barnabas.coordinator.group.classic.group_memory import GroupMemory
    from barnabas.coordinator.group.streams.tasks import Tasks
    from barnabas.protocol.records.streams_group_current_member_assignment import (
        TaskIds as CurrentTaskIds,
    )
    from barnabas.protocol.records.streams_group_target_assignment_member import TaskIds


class StreamsGroups:
    """All streams groups of a state partition."""

    __slots__ = ("_by_id", "_make_room", "_memory", "_replays")

    def __init__(self, make_room: Callable[[str], bool], memory: GroupMemory) -> None:
        # Memory accounting of all groups of this broker.
        self._memory = memory
        self._by_id: dict[str, StreamsGroup] = {}
        # Removes a classic group that has only offsets. False if the id has another group.
        self._make_room = make_room
        self._replays: dict[int, Callable[[bytes, bytes | None], None]] = {
            StreamsGroupMetadataKey.__record_type__: self._replay_epoch,
            StreamsGroupMemberMetadataKey.__record_type__: self._replay_member,
            StreamsGroupTargetAssignmentMetadataKey.__record_type__: self._replay_target_epoch,
            StreamsGroupTargetAssignmentMemberKey.__record_type__: self._replay_target,
            StreamsGroupCurrentMemberAssignmentKey.__record_type__: self._replay_current,
            StreamsGroupTopologyKey.__record_type__: self._replay_topology,
        }

    def find(self, group_id: str) -> StreamsGroup | None:
        """Return the group, or None if it does not exist."""
        return self._by_id.get(group_id)

    def has(self, group_id: str) -> bool:
        """Whether the group exists."""
        return group_id in self._by_id

    def all(self) -> Collection[StreamsGroup]:
        """Return all groups. The result shows later changes."""
        return self._by_id.values()

    def ids(self) -> list[str]:
        """Return the ids of all groups."""
        return list(self._by_id)

    def remove(self, group_id: str) -> None:
        """Remove a group, if it exists."""
        group = self._by_id.pop(group_id, None)
        if group is not None:
            group.release_memory()

    def restore(self, group: StreamsGroup) -> None:
        """Bring back a removed group without members, unless a new one has its id."""
        if self._by_id.setdefault(group.group_id, group) is group:
            group.reclaim_memory()

    def clear(self) -> None:
        """Remove all groups."""
        for group_id in list(self._by_id):
            self.remove(group_id)

    # Replay.

    def replay(self, record_type: int, key: bytes, value: bytes | None) -> bool:
        """Apply a record. Return whether it belongs to a streams group. Raises ProtocolError."""
        apply = self._replays.get(record_type)
        if apply is not None:
            apply(key, value)
        return apply is not None

    def _group(self, group_id: str, value: bytes | None) -> StreamsGroup | None:
        """Return the group of a record; None for the tombstone of an unknown group."""
        group = self._by_id.get(group_id)
        if group is None and value is not None:
            if not self._make_room(group_id):
                raise ProtocolError(f"group {group_id!r} is not a streams group")
            group = self._by_id[group_id] = StreamsGroup(group_id, self._memory)
        return group

    def _replay_epoch(self, key: bytes, value: bytes | None) -> None:
        group_id = decode_coordinator_key(StreamsGroupMetadataKey, key).group_id
        if value is None:
            self.remove(group_id)
            return
        record = decode_coordinator_value(StreamsGroupMetadataValue, value)
        group = self._group(group_id, value)
        assert group is not None
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

    def _replay_topology(self, key: bytes, value: bytes | None) -> None:
        group_id = decode_coordinator_key(StreamsGroupTopologyKey, key).group_id
        found = None
        if value is not None:
            found = StreamsTopology(decode_coordinator_value(StreamsGroupTopologyValue, value))
        group = self._group(group_id, value)
        if group is not None:
            group.topology = found

    def _replay_member(self, key: bytes, value: bytes | None) -> None:
        names = decode_coordinator_key(StreamsGroupMemberMetadataKey, key)
        record = None
        if value is not None:
            record = decode_coordinator_value(StreamsGroupMemberMetadataValue, value)
        group = self._group(names.group_id, value)
        if group is None:
            return
        if record is None:
            group.remove(names.member_id)
            return
        endpoint = record.user_endpoint
        group.put(
            replace(
                group.members.get(names.member_id) or StreamsMember(names.member_id),
                instance_id=record.instance_id,
                rack_id=record.rack_id,
                client_id=record.client_id,
                client_host=record.client_host,
                rebalance_timeout_ms=record.rebalance_timeout_ms,
                topology_epoch=record.topology_epoch,
                process_id=record.process_id,
                user_endpoint=None
                if endpoint is None
                else UserEndpoint(endpoint.host, endpoint.port),
                client_tags={each.key: each.value for each in record.client_tags},
            )
        )

    def _replay_target_epoch(self, key: bytes, value: bytes | None) -> None:
        group_id = decode_coordinator_key(StreamsGroupTargetAssignmentMetadataKey, key).group_id
        epoch, timestamp = NO_EPOCH, 0
        if value is not None:
            record = decode_coordinator_value(StreamsGroupTargetAssignmentMetadataValue, value)
            epoch, timestamp = record.assignment_epoch, record.assignment_timestamp
        group = self._group(group_id, value)
        if group is not None:
            group.assignment_epoch, group.assignment_timestamp = epoch, timestamp

    def _replay_target(self, key: bytes, value: bytes | None) -> None:
        names = decode_coordinator_key(StreamsGroupTargetAssignmentMemberKey, key)
        record = None
        if value is not None:
            record = decode_coordinator_value(StreamsGroupTargetAssignmentMemberValue, value)
        group = self._group(names.group_id, value)
        if group is None:
            return
        if record is None:
            group.targets.pop(names.member_id, None)
            return
        group.targets[names.member_id] = MemberTasks(
            active=_tasks(record.active_tasks),
            standby=_tasks(record.standby_tasks),
            warmup=_tasks(record.warmup_tasks),
        )

    def _replay_current(self, key: bytes, value: bytes | None) -> None:
        names = decode_coordinator_key(StreamsGroupCurrentMemberAssignmentKey, key)
        record = None
        if value is not None:
            record = decode_coordinator_value(StreamsGroupCurrentMemberAssignmentValue, value)
        group = self._group(names.group_id, value)
        if group is None:
            return
        known = group.members.get(names.member_id)
        if record is None:
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
            return
        epoch = record.member_epoch
        group.put(
            replace(
                known or StreamsMember(names.member_id),
                member_epoch=epoch,
                previous_member_epoch=record.previous_member_epoch,
                state=StreamsMemberState.of(record.state),
                assigned=OwnedTasks(
                    _active_tasks(record.active_tasks, epoch),
                    _tasks(record.standby_tasks),
                    _tasks(record.warmup_tasks),
                ),
                pending_revocation=OwnedTasks(
                    _active_tasks(record.active_tasks_pending_revocation, epoch),
                    _tasks(record.standby_tasks_pending_revocation),
                    _tasks(record.warmup_tasks_pending_revocation),
                ),
            )
        )


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
