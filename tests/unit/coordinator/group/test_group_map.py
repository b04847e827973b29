"""The map of all groups of a state partition."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from barnabas.coordinator.group.classic.classic_member import (
    ClassicMember,
    MemberIdentity,
    MemberTimes,
)
from barnabas.coordinator.group.classic.group_record import (
    empty_group,
    group_record,
    group_tombstone,
    replay_classic,
)
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerMember
from barnabas.coordinator.group.consumer.consumer_records import (
    current_record,
    epoch_record,
    group_records,
    group_tombstones,
    member_record,
    member_tombstones,
)
from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
from barnabas.coordinator.group.group_base import GroupMemory, GroupMetrics, RefusalError
from barnabas.coordinator.group.group_config import GroupSettings
from barnabas.coordinator.group.group_kind import GroupDependencies, KindShard
from barnabas.coordinator.group.kinds import new_group_map
from barnabas.coordinator.group.share.share_group import ShareShard
from barnabas.coordinator.group.streams.streams_group import StreamsShard
from barnabas.coordinator.group.topics import TopicHashes
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.record_frame import read_prefix
from barnabas.protocol.records.classic_groups import OffsetCommitKey
from barnabas.protocol.records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from barnabas.sim.clock import SimClock, SimScheduler

GROUP = "g"
MEMBER = ConsumerMember("m", client_id="c", subscribed_topic_names=frozenset({"t"}))


class World:
    """A map of groups."""

    def __init__(self) -> None:
        self.memory = GroupMemory()
        self.clock = SimClock(SimScheduler())
        self.groups = new_group_map(self.clock, self.memory)
        self.table = self.groups.of(ConsumerGroup)

    def add_classic(self) -> ClassicGroup:
        """Add a classic group without members."""
        group = empty_group(GROUP, self.groups)
        self.groups.add(group)
        return group

    def shard(self, kind: str) -> KindShard[Any]:
        """Return the part of the shard for one kind of groups."""
        topics: Any = None
        needed = GroupDependencies(
            self.groups, topics, TopicHashes(topics), topics, self.clock, topics, GroupMetrics()
        )
        settings = GroupSettings()
        match kind:
            case "consumer":
                return ConsumerShard(settings, needed)
            case "share":
                return ShareShard(settings, needed, 0)
            case _:
                return StreamsShard(settings, needed)

    def kinds(self) -> list[str]:
        """Return the kind of each group."""
        found = [self.groups.find(each) for each in self.groups.ids()]
        return [each.kind for each in found if each is not None]

    def replay(self, *records: CoordinatorRecord) -> None:
        for each in records:
            self.groups.replay(read_prefix(each.key), each.key, each.value)


def classic_record() -> tuple[bytes, bytes]:
    """Return key and value of the record of a classic group with a member."""
    group = ClassicGroup(GROUP, GroupState.EMPTY, 0, GroupMemory())
    identity = MemberIdentity("m", None, "c", "/h", "consumer")
    group.add(ClassicMember(identity, MemberTimes(1, 1), {"range": b""}))
    group.protocol_name = "range"
    record = group_record(group, {"m": b""})
    assert record.value is not None
    return record.key, record.value


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
    replay_classic(world.groups, *classic_record())
    held_bytes = world.memory.held_bytes
    with pytest.raises(ProtocolError, match="is not a consumer group"):
        world.replay(current_record(GROUP, MEMBER))
    assert not world.table.has(GROUP)
    assert world.memory.held_bytes == held_bytes > 0


def test_a_restored_group_does_not_replace_a_new_one() -> None:
    world = World()
    world.replay(member_record(GROUP, MEMBER))
    removed, held_bytes = world.table.find(GROUP), world.memory.held_bytes
    bring_back = world.groups.discard(GROUP)
    assert (world.groups.find(GROUP), world.memory.held_bytes) == (None, 0)
    bring_back()
    assert (world.groups.find(GROUP), world.memory.held_bytes) == (removed, held_bytes)
    bring_back = world.groups.discard(GROUP)
    world.replay(epoch_record(GROUP, 2, 0))
    new = world.groups.find(GROUP)
    bring_back()
    assert world.groups.find(GROUP) is new is not removed
    assert world.memory.held_bytes == 0


def test_a_classic_group_that_has_only_offsets_makes_room() -> None:
    world = World()
    world.add_classic()
    world.replay(member_record(GROUP, MEMBER))
    assert world.kinds() == ["consumer"]


def test_the_record_of_a_classic_group_replaces_a_group_of_any_kind() -> None:
    world = World()
    world.replay(member_record(GROUP, MEMBER))
    key, value = classic_record()
    replay_classic(world.groups, key, value)
    assert world.kinds() == ["classic"]
    replay_classic(world.groups, key, None)
    assert (world.groups.find(GROUP), world.memory.held_bytes) == (None, 0)


def test_an_unreadable_record_keeps_a_classic_group_without_members() -> None:
    world = World()
    world.replay(member_record(GROUP, MEMBER))
    key, value = classic_record()
    with pytest.raises(ProtocolError):
        replay_classic(world.groups, key, value[:-5])
    group = world.groups.of(ClassicGroup).find(GROUP)
    assert group is not None
    assert (group.has_only_offsets, world.memory.held_bytes) == (True, 0)


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_a_heartbeat_creates_a_group_that_is_not_yet_in_the_map(kind: str) -> None:
    world = World()
    shard = world.shard(kind)
    with pytest.raises(RefusalError, match=f"{kind.capitalize()} group {GROUP} not found"):
        shard.find_or_create(GROUP, [], is_joining=False)
    assert shard.find_or_create(GROUP, [], is_joining=True).group_id == GROUP
    assert world.groups.find(GROUP) is None


@pytest.mark.parametrize(("kind", "makes_room"), [("consumer", 1), ("share", 0), ("streams", 1)])
def test_an_empty_classic_group_makes_room_for_a_consumer_or_streams_group(
    kind: str, makes_room: int
) -> None:
    world, records = World(), list[CoordinatorRecord]()
    classic = world.add_classic()
    shard = world.shard(kind)
    with pytest.raises(RefusalError, match=f"is not a {kind} group"):
        shard.find_or_create(GROUP, records, is_joining=False)
    if makes_room:
        shard.find_or_create(GROUP, records, is_joining=True)
        assert [each.key for each in records] == [group_tombstone(GROUP).key]
    else:
        with pytest.raises(RefusalError, match=f"is not a {kind} group"):
            shard.find_or_create(GROUP, records, is_joining=True)
    assert world.groups.find(GROUP) is classic


def test_records_of_offsets_are_not_records_of_groups() -> None:
    key = CoordinatorRecord.of(OffsetCommitKey(group=GROUP, topic="t", partition=0), None).key
    assert read_prefix(key) not in World().groups.record_types
