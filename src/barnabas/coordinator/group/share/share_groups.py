"""The share groups of one state partition, and the replay of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.coordinator.group.assignment import NOTHING, target_of
from barnabas.coordinator.group.share.share_group import NO_EPOCH, ShareGroup
from barnabas.coordinator.group.share.share_member import ShareMember
from barnabas.coordinator.group.share.state_topics import StateTopic, StateTopics
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.protocol.record_frame import decode_coordinator_key, decode_coordinator_value
from barnabas.protocol.records.share_group_current_member_assignment import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
)
from barnabas.protocol.records.share_group_member_metadata import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from barnabas.protocol.records.share_group_metadata import (
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
)
from barnabas.protocol.records.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
)
from barnabas.protocol.records.share_group_target_assignment_member import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
)
from barnabas.protocol.records.share_group_target_assignment_metadata import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.coordinator.group.classic.group_memory import GroupMemory
    from barnabas.protocol.records.share_group_state_partition_metadata import TopicPartitionsInfo
    from barnabas.runtime.clock import Clock


class ShareGroups:
    """All share groups of a state partition."""

    __slots__ = ("_by_id", "_clock", "_make_room", "_memory", "_replays")

    def __init__(self, make_room: Callable[[str], bool], memory: GroupMemory, clock: Clock) -> None:
        # Memory accounting of all groups of this broker.
        self._memory = memory
        self._clock = clock
        self._by_id: dict[str, ShareGroup] = {}
        # Removes a classic group that has only offsets. False if the id has another group.
        self._make_room = make_room
        self._replays: dict[int, Callable[[bytes, bytes | None], None]] = {
            ShareGroupMetadataKey.__record_type__: self._replay_epoch,
            ShareGroupMemberMetadataKey.__record_type__: self._replay_member,
            ShareGroupTargetAssignmentMetadataKey.__record_type__: self._replay_target_epoch,
            ShareGroupTargetAssignmentMemberKey.__record_type__: self._replay_target,
            ShareGroupCurrentMemberAssignmentKey.__record_type__: self._replay_current,
            ShareGroupStatePartitionMetadataKey.__record_type__: self._replay_state_topics,
        }

    def find(self, group_id: str) -> ShareGroup | None:
        """Return the group, or None if it does not exist."""
        return self._by_id.get(group_id)

    def has(self, group_id: str) -> bool:
        """Whether the group exists."""
        return group_id in self._by_id

    def all(self) -> Collection[ShareGroup]:
        """Return all groups. The result shows later changes."""
        return self._by_id.values()

    def remove(self, group_id: str) -> None:
        """Remove a group, if it exists."""
        group = self._by_id.pop(group_id, None)
        if group is not None:
            group.release_memory()

    def clear(self) -> None:
        """Remove all groups."""
        for group_id in list(self._by_id):
            self.remove(group_id)

    # Replay.

    def replay(self, record_type: int, key: bytes, value: bytes | None) -> bool:
        """Apply a record. Return whether it belongs to a share group. Raises ProtocolError."""
        apply = self._replays.get(record_type)
        if apply is not None:
            apply(key, value)
        return apply is not None

    def _group(self, group_id: str, value: bytes | None) -> ShareGroup | None:
        """Return the group of a record; None for the tombstone of an unknown group."""
        group = self._by_id.get(group_id)
        if group is None and value is not None:
            if not self._make_room(group_id):
                raise ProtocolError(f"group {group_id!r} is not a share group")
            group = self._by_id[group_id] = ShareGroup(group_id, self._memory)
        return group

    def _replay_epoch(self, key: bytes, value: bytes | None) -> None:
        group_id = decode_coordinator_key(ShareGroupMetadataKey, key).group_id
        if value is None:
            self.remove(group_id)
            return
        record = decode_coordinator_value(ShareGroupMetadataValue, value)
        group = self._group(group_id, value)
        assert group is not None
        group.group_epoch = record.epoch
        group.metadata_hash = record.metadata_hash

    def _replay_member(self, key: bytes, value: bytes | None) -> None:
        names = decode_coordinator_key(ShareGroupMemberMetadataKey, key)
        record = None
        if value is not None:
            record = decode_coordinator_value(ShareGroupMemberMetadataValue, value)
        group = self._group(names.group_id, value)
        if group is None:
            return
        if record is None:
            group.remove(names.member_id)
            return
        group.put(
            replace(
                group.members.get(names.member_id) or ShareMember(names.member_id),
                rack_id=record.rack_id,
                client_id=record.client_id,
                client_host=record.client_host,
                subscribed_topic_names=frozenset(record.subscribed_topic_names),
            )
        )

    def _replay_target_epoch(self, key: bytes, value: bytes | None) -> None:
        group_id = decode_coordinator_key(ShareGroupTargetAssignmentMetadataKey, key).group_id
        epoch, timestamp = NO_EPOCH, 0
        if value is not None:
            record = decode_coordinator_value(ShareGroupTargetAssignmentMetadataValue, value)
            epoch, timestamp = record.assignment_epoch, record.assignment_timestamp
        group = self._group(group_id, value)
        if group is not None:
            group.assignment_epoch, group.assignment_timestamp = epoch, timestamp

    def _replay_target(self, key: bytes, value: bytes | None) -> None:
        names = decode_coordinator_key(ShareGroupTargetAssignmentMemberKey, key)
        record = None
        if value is not None:
            record = decode_coordinator_value(ShareGroupTargetAssignmentMemberValue, value)
        group = self._group(names.group_id, value)
        if group is None:
            return
        if record is None:
            group.targets.pop(names.member_id, None)
        else:
            group.targets[names.member_id] = target_of(
                {each.topic_id: each.partitions for each in record.topic_partitions}
            )

    def _replay_current(self, key: bytes, value: bytes | None) -> None:
        names = decode_coordinator_key(ShareGroupCurrentMemberAssignmentKey, key)
        record = None
        if value is not None:
            record = decode_coordinator_value(ShareGroupCurrentMemberAssignmentValue, value)
        group = self._group(names.group_id, value)
        if group is None:
            return
        known = group.members.get(names.member_id)
        if record is not None:
            group.put(
                replace(
                    known or ShareMember(names.member_id),
                    member_epoch=record.member_epoch,
                    previous_member_epoch=record.previous_member_epoch,
                    assigned=target_of(
                        {each.topic_id: each.partitions for each in record.assigned_partitions}
                    ),
                )
            )
        elif known is not None:
            group.put(
                replace(
                    known, member_epoch=NO_EPOCH, previous_member_epoch=NO_EPOCH, assigned=NOTHING
                )
            )

    def _replay_state_topics(self, key: bytes, value: bytes | None) -> None:
        group_id = decode_coordinator_key(ShareGroupStatePartitionMetadataKey, key).group_id
        found = None
        if value is not None:
            record = decode_coordinator_value(ShareGroupStatePartitionMetadataValue, value)
            now_ms = self._clock.wall_ms()
            found = StateTopics(
                _state_topics(record.initializing_topics, now_ms),
                _state_topics(record.initialized_topics, now_ms),
                frozenset(each.topic_id for each in record.deleting_topics),
            )
        group = self._group(group_id, value)
        if group is not None:
            group.state_topics = found


def _state_topics(topics: list[TopicPartitionsInfo], now_ms: int) -> dict[bytes, StateTopic]:
    return {
        each.topic_id: StateTopic(each.topic_name, frozenset(each.partitions), now_ms)
        for each in topics
    }
