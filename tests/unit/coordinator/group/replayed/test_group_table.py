"""The table of groups that change by the replay of their records only."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.classic.group_memory import GroupMemory
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_records import (
    current_record,
    epoch_record,
    group_records,
    group_tombstones,
    member_record,
    member_tombstones,
)
from barnabas.coordinator.group.consumer.consumer_replay import CONSUMER_REPLAYS
from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
from barnabas.coordinator.group.replayed.group_table import GroupTable
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.protocol.record_frame import read_prefix
from barnabas.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from barnabas.protocol.records.offset_commit import OffsetCommitKey

GROUP = "g"
MEMBER = ConsumerMember("m", client_id="c", subscribed_topic_names=frozenset({"t"}))


class World:
    """A table of consumer groups. Ids in `taken` have a group of another type."""

    def __init__(self) -> None:
        self.memory = GroupMemory()
        self.taken: set[str] = set()
        self.table = GroupTable(
            "consumer",
            lambda group_id: ConsumerGroup(group_id, self.memory),
            lambda group_id: group_id not in self.taken,
            CONSUMER_REPLAYS,
        )

    def replay(self, *records: CoordinatorRecord) -> None:
        for each in records:
            self.table.replay(read_prefix(each.key), each.key, each.value)


def test_the_records_of_a_group_restore_it_and_its_tombstones_remove_it() -> None:
    world, other = World(), World()
    world.replay(member_record(GROUP, MEMBER), epoch_record(GROUP, 7, 5))
    group = world.table.find(GROUP)
    assert group is not None
    assert (group.group_epoch, group.metadata_hash, [*group.members]) == (7, 5, ["m"])
    other.replay(*group_records(group))
    again = other.table.find(GROUP)
    assert again is not None
    assert again.members == group.members
    assert (again.group_epoch, again.metadata_hash) == (7, 5)
    assert other.memory.held_bytes == world.memory.held_bytes > 0
    world.replay(*group_tombstones(group))
    assert not world.table.has(GROUP)
    assert world.memory.held_bytes == 0


def test_tombstones_do_not_add_a_group() -> None:
    world = World()
    world.replay(
        *member_tombstones(GROUP, "m"), *group_tombstones(ConsumerGroup(GROUP, world.memory))
    )
    assert not world.table.has(GROUP)


def test_a_damaged_record_adds_no_group() -> None:
    world = World()
    assigned = TopicPartitions(topic_id=bytes(16), partitions=[0, 1], assignment_epochs=[1])
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1,
        previous_member_epoch=0,
        state=0,
        assigned_partitions=[assigned],
        partitions_pending_revocation=[],
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="m")
    with pytest.raises(ProtocolError, match="2 partitions have 1 assignment epochs"):
        world.replay(CoordinatorRecord.of(key, value))
    assert not world.table.has(GROUP)
    assert world.memory.held_bytes == 0


def test_a_group_of_another_type_keeps_its_id() -> None:
    world = World()
    world.taken.add(GROUP)
    with pytest.raises(ProtocolError, match="is not a consumer group"):
        world.replay(current_record(GROUP, MEMBER))
    assert not world.table.has(GROUP)
    assert world.memory.held_bytes == 0


def test_a_restored_group_does_not_replace_a_new_one() -> None:
    world = World()
    world.replay(member_record(GROUP, MEMBER))
    removed = world.table.find(GROUP)
    assert removed is not None
    world.table.remove(GROUP)
    assert world.table.restore(removed)
    world.table.remove(GROUP)
    world.replay(epoch_record(GROUP, 2, 0))
    assert not world.table.restore(removed)


def test_records_of_other_types_are_left_to_other_tables() -> None:
    key = CoordinatorRecord.of(OffsetCommitKey(group=GROUP, topic="t", partition=0), None).key
    assert read_prefix(key) not in World().table.record_types
