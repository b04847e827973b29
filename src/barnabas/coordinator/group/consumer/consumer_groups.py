"""The consumer groups of one state partition, and the replay of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.coordinator.group.assignment import NOTHING_OWNED, Owned, target_of
from barnabas.coordinator.group.consumer.consumer_group import NO_EPOCH, ConsumerGroup
from barnabas.coordinator.group.consumer.members.classic_metadata import ClassicMetadata
from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
from barnabas.coordinator.group.consumer.members.member_state import MemberState
from barnabas.coordinator.group.consumer.resolved_regex import ResolvedRegex
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.protocol.record_frame import (
    decode_coordinator_key,
    decode_coordinator_value,
)
from barnabas.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from barnabas.protocol.records.consumer_group_member_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from barnabas.protocol.records.consumer_group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from barnabas.protocol.records.consumer_group_partition_metadata import (
    ConsumerGroupPartitionMetadataKey,
)
from barnabas.protocol.records.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from barnabas.protocol.records.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from barnabas.protocol.records.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.coordinator.group.classic.group_memory import GroupMemory
    from barnabas.protocol.records.consumer_group_current_member_assignment import TopicPartitions
    from barnabas.protocol.records.consumer_group_member_metadata import ClassicMemberMetadata


class ConsumerGroups:
    """All consumer groups of a state partition."""

    __slots__ = ("_by_id", "_make_room", "_memory", "_replays")

    def __init__(self, make_room: Callable[[str], bool], memory: GroupMemory) -> None:
        # Memory accounting of all groups of this broker.
        self._memory = memory
        self._by_id: dict[str, ConsumerGroup] = {}
        # Removes a classic group that has only offsets. False if the id has another classic group.
        self._make_room = make_room
        self._replays: dict[int, Callable[[bytes, bytes | None], None]] = {
            ConsumerGroupMetadataKey.__record_type__: self._replay_epoch,
            ConsumerGroupPartitionMetadataKey.__record_type__: self._replay_partition_metadata,
            ConsumerGroupMemberMetadataKey.__record_type__: self._replay_member,
            ConsumerGroupTargetAssignmentMetadataKey.__record_type__: self._replay_target_epoch,
            ConsumerGroupTargetAssignmentMemberKey.__record_type__: self._replay_target,
            ConsumerGroupCurrentMemberAssignmentKey.__record_type__: self._replay_current,
            ConsumerGroupRegularExpressionKey.__record_type__: self._replay_regex,
        }

    def find(self, group_id: str) -> ConsumerGroup | None:
        """Return the group, or None if it does not exist."""
        return self._by_id.get(group_id)

    def all(self) -> Collection[ConsumerGroup]:
        """Return all groups. The result shows later changes."""
        return self._by_id.values()

    def ids(self) -> Collection[str]:
        """Return the ids of all groups. The result shows later changes."""
        return self._by_id.keys()

    def remove(self, group_id: str) -> None:
        """Remove a group, if it exists."""
        group = self._by_id.pop(group_id, None)
        if group is not None:
            group.release_memory()

    def restore(self, group: ConsumerGroup) -> None:
        """Bring back a removed group, unless a new one has its id."""
        if self._by_id.setdefault(group.group_id, group) is group:
            group.reclaim_memory()

    def clear(self) -> None:
        """Remove all groups."""
        for group_id in list(self._by_id):
            self.remove(group_id)

    # Replay.

    def replay(self, record_type: int, key: bytes, value: bytes | None) -> bool:
        """Apply a record. Return whether it belongs to a consumer group. Raises ProtocolError."""
        apply = self._replays.get(record_type)
        if apply is not None:
            apply(key, value)
        return apply is not None

    def _group(self, group_id: str, value: bytes | None) -> ConsumerGroup | None:
        """Return the group of a record; None for the tombstone of an unknown group."""
        group = self._by_id.get(group_id)
        if group is None and value is not None:
            if not self._make_room(group_id):
                raise ProtocolError(f"group {group_id!r} is a classic group")
            group = self._by_id[group_id] = ConsumerGroup(group_id, self._memory)
        return group

    def _replay_epoch(self, key: bytes, value: bytes | None) -> None:
        group_id = decode_coordinator_key(ConsumerGroupMetadataKey, key).group_id
        if value is None:
            self.remove(group_id)
            return
        record = decode_coordinator_value(ConsumerGroupMetadataValue, value)
        group = self._group(group_id, value)
        assert group is not None
        group.group_epoch = record.epoch
        group.metadata_hash = record.metadata_hash

    def _replay_partition_metadata(self, key: bytes, value: bytes | None) -> None:
        group_id = decode_coordinator_key(ConsumerGroupPartitionMetadataKey, key).group_id
        group = self._group(group_id, value)
        if group is not None:
            group.has_partition_metadata = value is not None

    def _replay_member(self, key: bytes, value: bytes | None) -> None:
        names = decode_coordinator_key(ConsumerGroupMemberMetadataKey, key)
        record = classic = None
        if value is not None:
            record = decode_coordinator_value(ConsumerGroupMemberMetadataValue, value)
            classic = _classic_metadata(record.classic_member_metadata)
        group = self._group(names.group_id, value)
        if group is None:
            return
        if record is None:
            group.remove(names.member_id)
            return
        known = group.members.get(names.member_id) or ConsumerMember(names.member_id)
        group.put(
            replace(
                known,
                instance_id=record.instance_id,
                rack_id=record.rack_id,
                client_id=record.client_id,
                client_host=record.client_host,
                subscribed_topic_names=frozenset(record.subscribed_topic_names),
                subscribed_topic_regex=record.subscribed_topic_regex or "",
                rebalance_timeout_ms=record.rebalance_timeout_ms,
                server_assignor=record.server_assignor,
                classic=classic,
            )
        )

    def _replay_target_epoch(self, key: bytes, value: bytes | None) -> None:
        group_id = decode_coordinator_key(ConsumerGroupTargetAssignmentMetadataKey, key).group_id
        epoch, timestamp = NO_EPOCH, 0
        if value is not None:
            record = decode_coordinator_value(ConsumerGroupTargetAssignmentMetadataValue, value)
            epoch, timestamp = record.assignment_epoch, record.assignment_timestamp
        group = self._group(group_id, value)
        if group is not None:
            group.assignment_epoch = epoch
            group.assignment_timestamp = timestamp

    def _replay_target(self, key: bytes, value: bytes | None) -> None:
        names = decode_coordinator_key(ConsumerGroupTargetAssignmentMemberKey, key)
        target = None
        if value is not None:
            record = decode_coordinator_value(ConsumerGroupTargetAssignmentMemberValue, value)
            target = target_of({each.topic_id: each.partitions for each in record.topic_partitions})
        group = self._group(names.group_id, value)
        if group is None:
            return
        if target is None:
            group.targets.pop(names.member_id, None)
        else:
            group.targets[names.member_id] = target

    def _replay_current(self, key: bytes, value: bytes | None) -> None:
        names = decode_coordinator_key(ConsumerGroupCurrentMemberAssignmentKey, key)
        record = None
        if value is not None:
            record = decode_coordinator_value(ConsumerGroupCurrentMemberAssignmentValue, value)
        group = self._group(names.group_id, value)
        if group is None:
            return
        known = group.members.get(names.member_id)
        if record is not None:
            changed = replace(
                known or ConsumerMember(names.member_id),
                member_epoch=record.member_epoch,
                previous_member_epoch=record.previous_member_epoch,
                state=MemberState.of(record.state),
                assigned=_owned(record.assigned_partitions, record.member_epoch),
                pending_revocation=_owned(
                    record.partitions_pending_revocation, record.member_epoch
                ),
            )
            group.put(changed)
        elif known is not None:
            group.put(
                replace(
                    known,
                    member_epoch=NO_EPOCH,
                    previous_member_epoch=NO_EPOCH,
                    assigned=NOTHING_OWNED,
                    pending_revocation=NOTHING_OWNED,
                )
            )

    def _replay_regex(self, key: bytes, value: bytes | None) -> None:
        names = decode_coordinator_key(ConsumerGroupRegularExpressionKey, key)
        found = None
        if value is not None:
            record = decode_coordinator_value(ConsumerGroupRegularExpressionValue, value)
            found = ResolvedRegex(frozenset(record.topics), record.version, record.timestamp)
        group = self._group(names.group_id, value)
        if group is None:
            return
        if found is None:
            group.resolved.pop(names.regular_expression, None)
        else:
            group.resolved[names.regular_expression] = found


def _classic_metadata(record: ClassicMemberMetadata | None) -> ClassicMetadata | None:
    """Return the metadata of a member of the classic protocol. Raises ProtocolError."""
    if record is None:
        return None
    protocols = {each.name: each.metadata for each in record.supported_protocols}
    if not protocols:
        raise ProtocolError("a member of the classic protocol has no protocols")
    if len(protocols) < len(record.supported_protocols):
        raise ProtocolError("a member of the classic protocol has a protocol twice")
    if record.session_timeout_ms < 0:
        raise ProtocolError(f"a member has a session timeout of {record.session_timeout_ms} ms")
    return ClassicMetadata(record.session_timeout_ms, tuple(protocols.items()))


def _owned(partitions: list[TopicPartitions], member_epoch: int) -> Owned:
    """Return the partitions of a record.

    Brokers before 4.2 store no assignment epochs. The member's epoch is their upper limit.
    """
    found: dict[bytes, dict[int, int]] = {}
    for each in partitions:
        epochs = each.assignment_epochs or [member_epoch] * len(each.partitions)
        if len(epochs) != len(each.partitions):
            raise ProtocolError(
                f"{len(each.partitions)} partitions have {len(epochs)} assignment epochs"
            )
        if each.partitions:
            found[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return found
