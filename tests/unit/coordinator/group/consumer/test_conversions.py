"""Groups with members change between the classic and the consumer protocol, in virtual time."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from unit.coordinator.group.consumer.mixed_world import (
    LONG_MS,
    SHORT_MS,
    MixedWorld,
    subscription,
)
from unit.coordinator.members_world import DELAY_MS, REBALANCE_MS, SESSION_MS

POLICY = "group_consumer_migration_policy"


@pytest.fixture
def world() -> MixedWorld:
    return MixedWorld()


def test_members_of_both_protocols_share_the_partitions(world: MixedWorld) -> None:
    member, _, epoch = world.mixed_group()
    types = {each.member_id: each.member_type for each in world.describe_consumers().members}
    assert types == {member: 0, "m1": 1}
    assert world.list_groups() == [("g", "consumer", "Stable", "consumer")]
    assert not world.is_classic()
    world.both_alive(3 * LONG_MS, member, epoch)
    assert world.state() == "Stable"


def test_the_last_consumer_that_leaves_makes_the_group_classic(world: MixedWorld) -> None:
    member, _, epoch = world.mixed_group()
    assert world.beat("m1", -1).error_code == ErrorCode.NONE
    assert world.describe().group_state == "PreparingRebalance"
    assert world.describe_consumers().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.heartbeat(member, epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join_a(member, [0, 1]).one
    assert (again.generation_id, again.leader) == (epoch + 1, member)
    world.sync(member, again.generation_id, assign={member: b"all"})
    assert world.describe().group_state == "Stable"
    world.leave(member)
    assert world.coordinator.memory.held_bytes == 0


def test_the_expired_session_of_the_last_consumer_makes_the_group_classic(
    world: MixedWorld,
) -> None:
    member, _, epoch = world.mixed_group()
    world.keep_alive(50_000, epoch, member)
    assert world.describe().group_state == "PreparingRebalance"


def test_a_static_consumer_that_stays_away_makes_the_group_classic(world: MixedWorld) -> None:
    member, generation = world.classic_member()
    world.subscribe("m1", "a", instance_id="i")
    assert world.beat("m1", -2, instance_id="i").error_code == ErrorCode.NONE
    assert not world.is_classic()
    first = world.join_a(member, [0, 1, 2, 3]).one
    world.assigned(member, first.generation_id)
    second = world.join_a(member, [0, 1]).one
    world.assigned(member, second.generation_id)
    world.keep_alive(50_000, second.generation_id, member)
    assert world.is_classic()
    assert generation < second.generation_id


@pytest.mark.parametrize("is_last", [True, False])
def test_a_classic_member_without_heartbeats_leaves(world: MixedWorld, is_last: bool) -> None:
    _, _, epoch = world.mixed_group()
    if is_last:
        world.beat("m1", -1)
    world.run_for(SHORT_MS)
    world.beat("m1", epoch)
    world.run_for(REBALANCE_MS + SESSION_MS)
    if is_last:
        assert world.describe().group_state == "Empty"
    else:
        assert [each.member_id for each in world.describe_consumers().members] == ["m1"]
        assert world.owned(world.beat("m1", epoch)) == {"a": {0, 1, 2, 3}}


def test_a_classic_member_that_does_not_rejoin_leaves(world: MixedWorld) -> None:
    member, generation = world.classic_member()
    epoch = world.subscribe("m1", "a").member_epoch
    for _ in range(REBALANCE_MS // SHORT_MS - 1):
        world.run_for(SHORT_MS)
        assert world.heartbeat(member, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    world.run_for(2 * SHORT_MS)
    assert world.heartbeat(member, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.owned(world.beat("m1", epoch)) == {"a": {0, 1, 2, 3}}


def test_a_classic_member_that_sends_no_sync_group_leaves(world: MixedWorld) -> None:
    epoch = world.subscribe("m1", "a").member_epoch
    joined = world.join("c1", protocols={"range": subscription("no-such-topic")}).one
    for _ in range(REBALANCE_MS // SHORT_MS + 1):
        world.run_for(SHORT_MS)
        error = world.heartbeat("c1", joined.generation_id)
        epoch = world.beat("m1", epoch).member_epoch
    assert error == ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.member_id for each in world.describe_consumers().members] == ["m1"]


def test_a_classic_member_that_does_not_revoke_leaves(world: MixedWorld) -> None:
    member, generation = world.classic_member()
    world.subscribe("m1", "a")
    world.join_a(member, [0, 1, 2, 3])
    world.assigned(member, generation)
    for _ in range(REBALANCE_MS // SHORT_MS + 1):
        world.run_for(SHORT_MS)
        error = world.heartbeat(member, generation)
    assert error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_coordinator_goes_on_with_members_of_both_protocols(world: MixedWorld) -> None:
    member, _, epoch = world.mixed_group()
    before = world.describe_consumers()
    world.restart()
    assert world.describe_consumers() == before
    assert world.heartbeat(member, epoch) == ErrorCode.NONE
    world.beat("m1", -1)
    world.restart()
    assert world.describe().group_state == "Stable"
    assert world.heartbeat(member, epoch + 1) == ErrorCode.ILLEGAL_GENERATION


def test_a_new_coordinator_keeps_the_session_timeouts(world: MixedWorld) -> None:
    _, _, epoch = world.mixed_group()
    world.restart()
    world.run_for(SESSION_MS + 1_000)
    assert [each.member_id for each in world.describe_consumers().members] == ["m1"]
    assert world.owned(world.beat("m1", epoch)) == {"a": {0, 1, 2, 3}}


def test_an_upgrade_ends_a_rebalance_of_the_classic_group(world: MixedWorld) -> None:
    first = world.join_a("", [])
    assert not first
    # Not even the first generation has started.
    assert world.owned(world.subscribe("m1", "a")) == {"a": {0, 1}}
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
    joined = world.join_a(first.one.member_id).one
    assert world.assigned(joined.member_id, joined.generation_id) == {2, 3}
    world.run_for(SHORT_MS)
    assert len(world.describe_consumers().members) == 2


def test_an_upgrade_ends_the_wait_for_the_leaders_assignment(world: MixedWorld) -> None:
    waiting = [world.join_a(), world.join_a()]
    world.run_for(2 * DELAY_MS + 10)
    leader, follower = (each.one for each in waiting)
    pending = world.sync(follower.member_id, follower.generation_id)
    assert not pending
    world.subscribe("m1", "a")
    assert pending.error == ErrorCode.REBALANCE_IN_PROGRESS
    late = world.sync(leader.member_id, leader.generation_id)
    assert late.error == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("DOWNGRADE", False, True),
        ("Bidirectional", True, True),
    ],
)
def test_the_policy_allows_conversions(policy: str, upgrades: bool, downgrades: bool) -> None:
    world = MixedWorld(**{POLICY: policy})
    member, _ = world.classic_member()
    joined = world.subscribe("m1", "a")
    assert joined.error_code == (ErrorCode.NONE if upgrades else ErrorCode.GROUP_ID_NOT_FOUND)
    world.leave(member)
    world.beat("m1", -1)
    world.run_for(1_000)
    assert world.subscribe("m1", "a").error_code == ErrorCode.NONE
    answer = world.join_a("c1").one
    if policy == "disabled":
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return
    assert answer.error_code == ErrorCode.NONE
    world.beat("m1", -1)
    assert world.is_classic() is downgrades


def test_classic_members_alone_get_the_partitions_of_the_last_consumer() -> None:
    world = MixedWorld(**{POLICY: "upgrade"})
    member, _, epoch = world.mixed_group()
    world.beat("m1", -1)
    assert world.heartbeat(member, epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join_a(member, [0, 1]).one
    assert world.assigned(member, again.generation_id) == {0, 1, 2, 3}
    assert world.heartbeat(member, again.generation_id) == ErrorCode.NONE


@pytest.mark.parametrize("key", ["group_max_size", "group_consumer_max_size"])
def test_groups_that_are_too_large_for_the_other_protocol_are_not_converted(key: str) -> None:
    world = MixedWorld(group_max_size=2)
    size_max = 9 if key == "group_max_size" else 1
    world.coordinator.settings.config.values["group.consumer.max.size"] = size_max
    if key == "group_max_size":
        world.subscribe("m1", "a")
        for each in ("c1", "c2", "c3"):
            assert world.join_a(each).one.error_code == ErrorCode.NONE
        world.beat("m1", -1)
        assert not world.is_classic()
        return
    waiting = [world.join_a(), world.join_a()]
    world.run_for(2 * DELAY_MS + 10)
    assert [each.error for each in waiting] == [0, 0]
    assert world.subscribe("m1", "a").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.is_classic()


def test_groups_that_do_not_fit_into_a_batch_are_not_converted(world: MixedWorld) -> None:
    large = {str(number): subscription("a") + bytes(400_000) for number in range(2)}
    member = world.join(version=3, protocols=large)
    world.run_for(2 * DELAY_MS + 10)
    assert world.subscribe("m1", "a").error_code == ErrorCode.NONE
    world.leave(member.one.member_id)
    joined = [world.join(each, protocols=large).error for each in ("c1", "c2")]
    assert joined == [ErrorCode.NONE] * 2
    assert world.beat("m1", -1).error_code == ErrorCode.NONE
    assert len(world.describe_consumers().members) == 2
    huge = {str(number): subscription("a") + bytes(400_000) for number in range(3)}
    world.join(version=3, protocols=huge, group="h")
    refused = world.subscribe("m1", "a", group="h")
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    world.subscribe("m1", "a", group="i")
    assert world.join("c1", protocols=huge, group="i").error == ErrorCode.UNKNOWN_SERVER_ERROR


def test_unreadable_subscriptions_keep_the_group_as_it_is(world: MixedWorld) -> None:
    world.subscribe("m1", "a")
    protocols = {"range": subscription("a"), "odd": b""}
    assert world.join("c1", protocols=protocols).error == ErrorCode.NONE
    assert world.beat("m1", -1).error_code == ErrorCode.NONE
    assert [each.member_id for each in world.describe_consumers().members] == ["c1"]


def test_a_rejected_record_brings_the_consumer_group_back() -> None:
    world = MixedWorld(replicas=(1, 2))
    member, _, epoch = world.mixed_group()
    held = world.coordinator.memory.held_bytes
    before = world.describe_consumers()
    world.reject_appends()
    assert world.beat("m1", -1).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.accept_appends()
    assert world.describe_consumers() == before
    assert world.coordinator.memory.held_bytes == held
    assert world.heartbeat(member, epoch) == ErrorCode.NONE
    assert world.beat("m1", epoch).error_code == ErrorCode.NONE
    world.run_for(SHORT_MS)
    assert world.beat("m1", -1).error_code == ErrorCode.NONE
    assert world.describe().group_state == "PreparingRebalance"


def test_a_rejected_upgrade_leaves_the_classic_group() -> None:
    world = MixedWorld(replicas=(1, 2))
    member, generation = world.classic_member()
    held = world.coordinator.memory.held_bytes
    world.reject_appends()
    assert world.subscribe("m1", "a").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.accept_appends()
    assert world.coordinator.memory.held_bytes == held
    assert world.heartbeat(member, generation) == ErrorCode.NONE
    world.keep_alive(2 * SESSION_MS, generation, member)
    assert world.describe().group_state == "Stable"
