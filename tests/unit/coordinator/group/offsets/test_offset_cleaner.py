"""Expiry of offsets and groups by Kafka's rules, and offsets of deleted topics."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group import offset_cleaner
from barnabas.coordinator.group.group_base import TOPIC_NAMES_MAX
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.members_world import MembersWorld, subscription
from unit.coordinator.streams_world import StreamsWorld, topology
from unit.replication.replica_set import TOPIC_ID

CHECK_MS = 10_000
RETENTION_MS = 60_000
CONFIG = {"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": CHECK_MS}


@pytest.fixture
def world() -> MembersWorld:
    return MembersWorld(**CONFIG)


def offsets(world: MembersWorld, *groups: str) -> list[int]:
    return [world.committed(group=group)[1] for group in groups]


def test_offsets_without_members_expire_after_their_commit(world: MembersWorld) -> None:
    world.commit(5, group="old")
    world.run_for(RETENTION_MS // 2)
    world.commit(6, group="new")
    world.run_for(RETENTION_MS // 2 + CHECK_MS)
    assert offsets(world, "old", "new") == [-1, 6]
    assert [each[0] for each in world.list_groups()] == ["new"], "nothing is left of the other"
    world.fail_over()
    assert offsets(world, "old", "new") == [-1, 6]
    assert [each[0] for each in world.list_groups()] == ["new"]


def test_a_new_commit_without_members_starts_the_retention_again(world: MembersWorld) -> None:
    """The time at which the group became empty counts only for groups that had members."""
    world.commit(5)
    world.run_for(RETENTION_MS - 10_000)
    world.commit(6)
    world.run_for(RETENTION_MS // 2)
    assert offsets(world, "g") == [6]


def test_an_open_transaction_keeps_its_group_and_the_offsets_of_its_partitions(
    world: MembersWorld,
) -> None:
    world.commit(5)
    world.commit(100, producer=7)
    world.commit(100, producer=8, group="only staged")
    world.run_for(2 * RETENTION_MS)
    assert offsets(world, "g") == [5]
    assert len(world.list_groups()) == 2
    world.end_transaction(7, commit=False)
    world.end_transaction(8, commit=False)
    world.run_for(2 * CHECK_MS)
    assert (offsets(world, "g"), world.list_groups()) == ([-1], [])


@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_groups_of_the_new_protocols_keep_staged_offsets(kind: str) -> None:
    world = StreamsWorld(broker_config=CONFIG)
    world.create_topic("trains", 1)
    if kind == "consumer":
        world.subscribe("m", "trains")
        world.beat("m", -1)
    else:
        world.beat_streams("m", 0, topology("trains"))
        world.beat_streams("m", -1)
    world.commit(100, producer=7)
    world.run_for(2 * RETENTION_MS)
    assert [each[3] for each in world.list_groups()] == [kind]
    world.delete("g")
    world.end_transaction(7, commit=True)
    world.fail_over()
    assert (offsets(world, "g"), world.list_groups()) == ([-1], [])


def test_a_group_keeps_its_offsets_as_long_as_it_has_members(world: MembersWorld) -> None:
    (member,) = world.stable()
    world.commit(5, generation=1, member=member)
    world.keep_alive(3 * RETENTION_MS, 1, member)
    assert offsets(world, "g") == [5]


def test_the_retention_of_an_empty_group_starts_when_it_becomes_empty(
    world: MembersWorld,
) -> None:
    (member,) = world.stable()
    world.commit(5, generation=1, member=member)
    world.keep_alive(2 * RETENTION_MS, 1, member)
    world.leave(member)
    world.run_for(RETENTION_MS - 1_000)
    assert offsets(world, "g") == [5], "counted since it is empty, not since the commit"
    world.run_for(CHECK_MS + 1_000)
    assert offsets(world, "g") == [-1]
    assert world.list_groups() == []


def test_the_time_at_which_a_group_became_empty_survives_a_failover(world: MembersWorld) -> None:
    (member,) = world.stable()
    world.commit(5, generation=1, member=member)
    world.leave(member)
    world.run_for(RETENTION_MS // 2)
    world.fail_over()
    world.run_for(RETENTION_MS // 2 + CHECK_MS)
    assert offsets(world, "g") == [-1]


@pytest.mark.parametrize("version", [b"\0\0", b"\0\1", b"\0\3", b"\xff\xff"])
def test_offsets_of_unsubscribed_topics_expire(world: MembersWorld, version: bytes) -> None:
    """Some clients write a version of the subscription whose fields they omit."""
    (member,) = world.stable(protocols={"range": version + subscription("trains")[2:]})
    world.commit(5, generation=1, member=member)
    world.keep_alive(RETENTION_MS + CHECK_MS, 1, member)
    assert offsets(world, "g") == [-1]
    assert world.heartbeat(member, 1) == ErrorCode.NONE


def test_offsets_stay_if_a_subscription_is_too_large_to_be_read(world: MembersWorld) -> None:
    metadata = subscription(*(f"topic-{number}" for number in range(TOPIC_NAMES_MAX + 1)))
    (member,) = world.stable(protocols={"range": metadata})
    world.commit(5, generation=1, member=member)
    world.keep_alive(RETENTION_MS + CHECK_MS, 1, member)
    assert offsets(world, "g") == [5]


def test_a_group_that_rebalances_keeps_all_offsets(world: MembersWorld) -> None:
    options = {"protocols": {"range": subscription("trains")}, "rebalance_ms": 10 * RETENTION_MS}
    (member,) = world.stable(**options)
    world.commit(5, generation=1, member=member)
    joining = world.join(world.new_id(), **options)
    world.keep_alive(RETENTION_MS + 2 * CHECK_MS, 1, member)
    assert not joining
    assert offsets(world, "g") == [5]


def test_offsets_of_other_protocol_types_do_not_expire_while_members_exist(
    world: MembersWorld,
) -> None:
    options = {"protocol_type": "connect", "protocols": {"range": b"?"}}
    waiting = world.join(world.new_id(**options), **options)
    world.run_for(5_000)
    member = waiting.one.member_id
    world.sync(member, 1, protocol_type="connect")
    world.commit(5, generation=1, member=member)
    world.keep_alive(RETENTION_MS + CHECK_MS, 1, member)
    assert offsets(world, "g") == [5]


def test_the_expiry_of_an_offset_overrides_the_retention(world: MembersWorld) -> None:
    world.commit(5, 4, group="short", retention_ms=1_000)
    world.commit(6, 4, group="long", retention_ms=10 * RETENTION_MS)
    world.run_for(CHECK_MS + 1_000)
    assert offsets(world, "short", "long") == [-1, 6]
    world.run_for(2 * RETENTION_MS)
    assert offsets(world, "long") == [6]


def test_an_empty_group_without_offsets_is_removed(world: MembersWorld) -> None:
    (member,) = world.stable()
    world.leave(member)
    world.run_for(CHECK_MS + 10)
    assert world.list_groups() == []


def test_a_group_with_an_issued_member_id_is_kept(world: MembersWorld) -> None:
    member = world.new_id(session_ms=60_000)
    world.run_for(CHECK_MS + 10)
    assert not world.join(member), "it waits for the generation"


def test_many_offsets_are_removed_in_slices(
    world: MembersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_cleaner, "SLICE_OFFSETS", 3)
    for group in range(7):
        for partition in (0, 1):
            world.commit(5, group=f"g{group}", partition=partition)
    world.run_for(RETENTION_MS + CHECK_MS + 100)
    assert world.list_groups() == []
    assert world.shard.offsets.group_ids() == []


def test_a_group_with_more_offsets_than_a_slice_is_removed(
    world: MembersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_cleaner, "SLICE_OFFSETS", 1)
    world.commit(5, partition=0)
    world.commit(5, partition=1)
    world.run_for(RETENTION_MS + CHECK_MS + 100)
    assert world.list_groups() == []


def test_a_failed_removal_is_retried_at_the_next_check() -> None:
    world = MembersWorld((1, 2), **CONFIG)
    world.commit(5)
    world.follow(1)
    config = world.log.config
    world.log.update_config(config.__class__(min_insync_replicas=3))
    world.run_for(RETENTION_MS + CHECK_MS)
    assert world.shard.offsets.group_ids() == ["g"]
    world.log.update_config(config)
    world.run_for(CHECK_MS + 10)
    world.follow(3)
    assert world.committed()[1] == -1


def test_offsets_of_a_deleted_topic_are_removed(world: MembersWorld) -> None:
    world.commit(5)
    world.commit(6, group="h")
    world.coordinator.on_topics_deleted({"flights": TOPIC_ID})
    world.run_for(10)
    assert world.shard.offsets.group_ids() == []
    assert len(world.list_groups()) == 2, "the groups stay until their time is over"


def test_offsets_of_a_new_topic_with_the_same_name_are_kept(world: MembersWorld) -> None:
    world.commit(5)
    world.coordinator.on_topics_deleted({"flights": b"another topic id"})
    world.run_for(10)
    assert offsets(world, "g") == [5]


def test_staged_offsets_of_a_deleted_topic_are_removed(world: MembersWorld) -> None:
    world.commit(5, group="h")
    for group, producer in (("g", 7), ("h", 8)):
        world.commit(100, group=group, producer=producer)
    world.coordinator.on_topics_deleted({"flights": TOPIC_ID})
    world.run_for(10)
    world.end_transaction(7, commit=True)
    world.end_transaction(8, commit=True)
    assert offsets(world, "g", "h") == [-1, -1]


def test_staged_offsets_of_a_new_topic_with_the_same_name_are_kept(world: MembersWorld) -> None:
    world.commit(100, producer=7)
    world.coordinator.on_topics_deleted({"flights": b"another topic id"})
    world.run_for(10)
    world.end_transaction(7, commit=True)
    assert offsets(world, "g") == [100]


def test_offsets_of_a_topic_deleted_during_loading_are_removed(
    world: MembersWorld,
) -> None:
    world.commit(5)
    world.coordinator = world.new_coordinator()
    world.coordinator.runtime.on_elected(0, 1)
    world.coordinator.on_topics_deleted({"flights": TOPIC_ID})
    world.run_for(100)
    assert offsets(world, "g") == [-1]
