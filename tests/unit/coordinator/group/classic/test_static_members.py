"""Static members keep their membership over a restart, and fence their old ids (KIP-345)."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.classic.classic_group import GroupState
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.members_world import DELAY_MS, SESSION_MS, MembersWorld, subscription


@pytest.fixture
def world() -> MembersWorld:
    return MembersWorld()


def stable(world: MembersWorld, *instances: str) -> list[str]:
    waiting = [world.join(instance=each) for each in instances]
    world.run_for(2 * DELAY_MS + 10)
    ids = [each.one.member_id for each in waiting]
    world.sync_all(1, ids)
    return ids


def test_a_static_member_joins_in_one_step_with_an_id_from_its_instance_id(
    world: MembersWorld,
) -> None:
    leader, _ = stable(world, "a", "b")
    assert leader.startswith("a-")
    assert world.group.static_members["a"] == leader


def test_a_rejoining_static_follower_causes_no_rebalance(world: MembersWorld) -> None:
    leader, follower = stable(world, "a", "b")
    back = world.join(instance="b").one
    assert (back.error_code, back.generation_id, back.leader) == (0, 1, leader)
    assert back.member_id != follower
    assert not back.skip_assignment
    assert world.group.state is GroupState.STABLE
    assert world.sync(back.member_id, 1, instance="b").one.assignment == b"for " + follower.encode()


def test_a_rejoining_static_leader_skips_the_assignment(world: MembersWorld) -> None:
    stable(world, "a", "b")
    back = world.join(instance="a").one
    assert (back.skip_assignment, back.leader) == (True, back.member_id)
    assert len(back.members) == 2


def test_before_version_9_a_rejoining_static_leader_gets_its_old_id_as_leader(
    world: MembersWorld,
) -> None:
    leader, _ = stable(world, "a", "b")
    back = world.join(version=8, instance="a").one
    assert (back.skip_assignment, back.leader, back.members) == (False, leader, [])
    assert world.group.leader_id == back.member_id


def test_the_replaced_member_id_is_fenced(world: MembersWorld) -> None:
    leader, follower = stable(world, "a", "b")
    world.join(instance="b")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(follower, 1, instance="b") == fenced
    assert world.sync(follower, 1, instance="b").error == fenced
    assert world.join(follower, instance="b").error == fenced
    assert world.leave((follower, "b")).one.members[0].error_code == fenced
    assert world.commit(5, generation=1, member=follower, instance="b") == fenced
    assert world.heartbeat(leader, 1, instance="a") == ErrorCode.NONE


def test_pending_requests_of_a_replaced_member_id_are_fenced(world: MembersWorld) -> None:
    waiting = world.join(instance="a")
    again = world.join(instance="a")
    assert waiting.error == ErrorCode.FENCED_INSTANCE_ID
    world.run_for(2 * DELAY_MS + 10)
    assert len(again.one.members) == 1
    syncing = world.sync(again.one.member_id, 2)
    assert syncing.error == ErrorCode.ILLEGAL_GENERATION
    world.join(instance="b")
    joining = world.join(again.one.member_id, instance="a")
    follower = next(each for each in joining.one.members if each.group_instance_id == "b")
    syncing = world.sync(follower.member_id, 2, instance="b")
    world.join(instance="b")
    assert syncing.error == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_rejoins_before_the_assignment_starts_a_rebalance(
    world: MembersWorld,
) -> None:
    waiting = [world.join(instance=each) for each in "ab"]
    world.run_for(2 * DELAY_MS + 10)
    follower = waiting[1].one.member_id
    syncing = world.sync(follower, 1, instance="b")
    again = world.join(instance="b")
    assert syncing.error == ErrorCode.FENCED_INSTANCE_ID
    assert world.group.state is GroupState.PREPARING_REBALANCE
    assert world.join(waiting[0].one.member_id, instance="a").one.generation_id == 2
    assert again.one.generation_id == 2


def test_a_static_member_that_rejoins_with_other_protocols_starts_a_rebalance(
    world: MembersWorld,
) -> None:
    both = {"range": subscription("flights"), "sticky": subscription("flights")}
    leader = world.join(instance="a", protocols=both)
    world.run_for(DELAY_MS + 1)
    world.sync_all(1, [leader.one.member_id])
    back = world.join(instance="a", protocols={"sticky": subscription("flights")})
    assert back.one.generation_id == 2
    assert back.one.protocol_name == "sticky"


def test_a_static_member_can_rejoin_only_within_its_session_timeout(
    world: MembersWorld,
) -> None:
    leader, _ = stable(world, "a", "b")
    world.keep_alive(SESSION_MS - 1_000, 1, leader)
    back = world.join(instance="b").one
    assert world.heartbeat(leader, 1) == ErrorCode.NONE
    world.keep_alive(SESSION_MS + 1_000, 1, leader)
    assert world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(back.member_id, instance="b").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_rejoin_keeps_its_membership(world: MembersWorld) -> None:
    leader, absent = stable(world, "a", "b")
    again = world.join(leader, instance="a")
    world.keep_alive(21_000, 1, absent)
    assert {each.member_id for each in again.one.members} == {leader, absent}


def test_a_rebalance_that_no_static_member_rejoins_is_retried_with_a_delay(
    world: MembersWorld, caplog: pytest.LogCaptureFixture
) -> None:
    stable(world, "a")
    world.join(instance="a", rebalance_ms=0)
    newcomer = world.new_id()
    world.join(newcomer, rebalance_ms=0)
    world.leave(newcomer)
    assert world.group.state is GroupState.PREPARING_REBALANCE
    world.run_for(500)
    assert caplog.text.count("No member rejoins a rebalance") == 1
    world.run_for(SESSION_MS)
    assert world.group.state is GroupState.EMPTY


def test_a_leave_request_removes_by_instance_id(world: MembersWorld) -> None:
    leader, _ = stable(world, "a", "b")
    response = world.leave(("", "b")).one
    assert [(each.group_instance_id, each.error_code) for each in response.members] == [("b", 0)]
    assert world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_new_member_id_survives_a_failover(world: MembersWorld) -> None:
    _, follower = stable(world, "a", "b")
    back = world.join(instance="b").one.member_id
    world.fail_over()
    assert world.heartbeat(back, 1, instance="b") == ErrorCode.NONE
    assert world.heartbeat(follower, 1, instance="b") == ErrorCode.FENCED_INSTANCE_ID


def test_a_replacement_that_cannot_be_written_is_reverted() -> None:
    world = MembersWorld((1, 2))
    waiting = world.join(instance="a")
    world.run_for(DELAY_MS + 1)
    member = waiting.one.member_id
    syncing = world.sync(member, 1, assign={member: b"A"})
    world.follow(2)
    assert syncing.one.assignment == b"A"
    back = world.join(instance="a")
    assert not back
    world.run_for(5_010)
    assert back.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group.static_members == {"a": member}
    world.follow(3)
    assert world.heartbeat(member, 1, instance="a") == ErrorCode.NONE
