"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup have the responses of Apache Kafka 4.4."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.classic.classic_group import GroupState
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.members_world import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    MembersWorld,
    subscription,
)


@pytest.fixture
def world() -> MembersWorld:
    return MembersWorld()


# Joining.


def test_a_new_member_gets_an_id_first_and_joins_with_it(world: MembersWorld) -> None:
    answer = world.join(client_id="me").one
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("me-")
    waiting = world.join(answer.member_id)
    assert not waiting
    world.run_for(DELAY_MS + 1)
    joined = waiting.one
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    assert (joined.leader, joined.member_id) == (answer.member_id, answer.member_id)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [each.member_id for each in joined.members] == [answer.member_id]
    assert not joined.skip_assignment


def test_before_version_4_a_member_joins_without_an_id(world: MembersWorld) -> None:
    waiting = world.join(version=3)
    world.run_for(DELAY_MS + 1)
    assert waiting.one.generation_id == 1
    assert waiting.one.members[0].metadata == subscription("flights")


def test_only_the_leader_receives_the_member_list(world: MembersWorld) -> None:
    leader, follower = world.begin(2)
    assert len(leader.members) == 2
    assert follower.members == []
    assert follower.leader == leader.member_id


def test_each_new_member_extends_the_initial_delay(world: MembersWorld) -> None:
    first = world.join(world.new_id())
    for _ in range(3):
        world.run_for(DELAY_MS - 10)
        world.join(world.new_id())
    assert not first
    world.run_for(2 * DELAY_MS)
    assert len(first.one.members) == 4


def test_the_delay_does_not_exceed_the_rebalance_timeout(world: MembersWorld) -> None:
    first = world.join(world.new_id(), rebalance_ms=5_000)
    world.run_for(DELAY_MS - 10)
    world.join(world.new_id(), rebalance_ms=5_000)
    world.run_for(5_000 - DELAY_MS + 20)
    assert len(first.one.members) == 2


def test_requests_are_validated_before_the_group_is_looked_up(world: MembersWorld) -> None:
    assert world.join(group="").error == ErrorCode.INVALID_GROUP_ID
    for session_ms in (5_999, 1_800_001):
        assert world.join(session_ms=session_ms).error == ErrorCode.INVALID_SESSION_TIMEOUT
    assert world.join("unknown").error == ErrorCode.UNKNOWN_MEMBER_ID
    # Nor does it found one.
    assert world.list_groups() == []
    assert world.join(protocol_type="").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocols={}).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync("x", 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("x", 1, group="").error == ErrorCode.INVALID_GROUP_ID
    assert world.sync("x", 1, protocol_type=None).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("x", 1, group="") == ErrorCode.INVALID_GROUP_ID
    assert world.leave("x", group="").error == ErrorCode.INVALID_GROUP_ID


def test_a_join_error_has_a_null_or_empty_protocol_name_by_version(world: MembersWorld) -> None:
    assert world.join("unknown", 6).one.protocol_name == ""
    assert world.join("unknown", 7).one.protocol_name is None


def test_members_must_share_protocol_type_and_a_protocol(world: MembersWorld) -> None:
    world.stable()
    other_type = world.join(protocol_type="connect")
    assert other_type.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other_name = world.join(protocols={"sticky": b""})
    assert other_name.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_common_protocol_with_most_votes_is_selected(
    world: MembersWorld,
) -> None:
    liked = [("range", "sticky", "mine"), ("sticky", "range"), ("sticky", "range")]
    waiting = [world.join(world.new_id(), protocols=dict.fromkeys(names, b"")) for names in liked]
    world.run_for(2 * DELAY_MS + 10)
    assert {each.one.protocol_name for each in waiting} == {"sticky"}


def test_a_protocol_that_one_member_does_not_support_is_not_selected(world: MembersWorld) -> None:
    liked = [("mine", "range"), ("yours", "range")]
    waiting = [world.join(world.new_id(), protocols=dict.fromkeys(names, b"")) for names in liked]
    world.run_for(2 * DELAY_MS + 10)
    assert {each.one.protocol_name for each in waiting} == {"range"}


def test_before_version_1_the_session_timeout_limits_the_rebalance(world: MembersWorld) -> None:
    old = {"version": 0, "rebalance_ms": -1}
    first = world.join(**old)
    world.run_for(2 * DELAY_MS)
    member = first.one.member_id
    world.sync_all(1, [member])
    second = world.join(**old)
    world.keep_alive(SESSION_MS - 1_000, 1, member)
    assert not second
    world.keep_alive(2_000, 1, member)
    assert [each.member_id for each in second.one.members] == [second.one.member_id]


def test_an_assignment_of_an_earlier_generation_is_discarded() -> None:
    world = MembersWorld((1, 2))
    waiting = world.join(world.new_id())
    world.run_for(DELAY_MS + 1)
    member = waiting.one.member_id
    world.follow(1)
    syncing = world.sync(member, 1, assign={member: b"A"})
    joining = world.join(world.new_id())
    assert syncing.error == ErrorCode.REBALANCE_IN_PROGRESS
    world.join(member)
    assert joining.one.generation_id == 2
    world.follow(2)
    assert world.group.state is GroupState.COMPLETING_REBALANCE
    assert world.group.members[member].assignment == b""


def test_a_group_has_no_more_members_than_group_max_size() -> None:
    world = MembersWorld(group_max_size=2)
    world.stable(2)
    refused = world.join().one
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_an_issued_member_id_expires_after_the_session_timeout(world: MembersWorld) -> None:
    member = world.new_id()
    world.run_for(SESSION_MS + 1)
    assert world.join(member).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_clients_with_an_issued_member_id(world: MembersWorld) -> None:
    (leader,) = world.stable()
    pending = world.new_id()
    again = world.join(leader)
    assert not again
    world.run_for(SESSION_MS + 1)
    assert pending not in [each.member_id for each in again.one.members]


# A rebalance.


def test_a_new_member_makes_all_members_rejoin(world: MembersWorld) -> None:
    (leader,) = world.stable()
    newcomer = world.join(world.new_id())
    assert world.group.state is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(leader)
    assert again.one.generation_id == newcomer.one.generation_id == 2
    assert len(again.one.members) == 2


def test_a_member_that_does_not_rejoin_in_time_is_removed(world: MembersWorld) -> None:
    leader, lazy = world.stable(2)
    again = world.join(leader)
    # It goes on with its heartbeats, and does not join.
    world.keep_alive(REBALANCE_MS + 1_000, 1, lazy)
    assert [each.member_id for each in again.one.members] == [leader]
    assert world.heartbeat(lazy, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_removed_leader_is_replaced_by_a_joined_member(world: MembersWorld) -> None:
    leader, follower = world.stable(2)
    world.join(world.new_id())
    again = world.join(follower)
    world.run_for(SESSION_MS + 1)
    assert again.one.leader == follower
    assert leader not in [each.member_id for each in again.one.members]


def test_a_follower_that_rejoins_unchanged_gets_the_same_generation(
    world: MembersWorld,
) -> None:
    leader, follower = world.stable(2)
    answer = world.join(follower).one
    assert (answer.generation_id, answer.members, answer.leader) == (1, [], leader)
    assert world.group.state is GroupState.STABLE


def test_a_follower_with_other_topics_and_a_leader_start_a_rebalance(world: MembersWorld) -> None:
    leader, follower = world.stable(2)
    assert not world.join(follower, protocols={"range": subscription("trains")})
    assert world.group.state is GroupState.PREPARING_REBALANCE
    world.sync_all(world.join(leader).one.generation_id, [leader, follower])
    assert not world.join(leader)
    assert world.group.state is GroupState.PREPARING_REBALANCE


def test_a_repeated_join_gets_the_lost_response_again(world: MembersWorld) -> None:
    leader, follower = world.begin(2)
    assert world.join(follower.member_id).one.generation_id == 1
    assert len(world.join(leader.member_id).one.members) == 2


def test_each_of_two_joins_of_a_member_is_answered(world: MembersWorld) -> None:
    member = world.new_id()
    first = world.join(member)
    second = world.join(member)
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
    world.run_for(2 * DELAY_MS + 10)
    assert second.one.generation_id == 1


def test_a_join_of_a_new_member_is_pending_for_at_most_five_minutes(world: MembersWorld) -> None:
    (leader,) = world.stable(rebalance_ms=1_000_000)
    newcomer = world.join(world.new_id(), rebalance_ms=1_000_000)
    for _ in range(300):
        world.run_for(1_000)
        world.heartbeat(leader, 1)
    assert newcomer.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer.one.member_id == ""


# Assignments.


def test_the_leaders_assignment_answers_pending_and_later_syncs(world: MembersWorld) -> None:
    leader, follower, late = (each.member_id for each in world.begin(3))
    waiting = world.sync(follower, 1)
    assert not waiting
    leaders = world.sync(leader, 1, assign={leader: b"L", follower: b"F"}).one
    assert (leaders.assignment, leaders.protocol_type, leaders.protocol_name) == (
        b"L",
        "consumer",
        "range",
    )
    assert waiting.one.assignment == b"F"
    assert world.sync(late, 1).one.assignment == b"", "the leader left it out"
    assert world.group.state is GroupState.STABLE


def test_a_sync_is_validated(world: MembersWorld) -> None:
    (leader,) = world.stable()
    assert world.sync("x", 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync(leader, 2).error == ErrorCode.ILLEGAL_GENERATION
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        assert world.sync(leader, 1, **wrong).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(leader, 1, 4, protocol_type=None, protocol_name=None).error == 0
    world.join(world.new_id())
    assert world.sync(leader, 1).error == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_pending_sync_fails_when_a_new_member_joins(world: MembersWorld) -> None:
    _, follower = (each.member_id for each in world.begin(2))
    waiting = world.sync(follower, 1)
    world.join(world.new_id())
    assert waiting.error == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_does_not_sync_in_time_is_removed(world: MembersWorld) -> None:
    leader, silent = (each.member_id for each in world.begin(2, session_ms=60_000))
    assert world.sync(leader, 1, assign={}).error == 0
    world.run_for(REBALANCE_MS + 1)
    assert world.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert silent not in world.group.members


def test_an_assignment_is_sent_after_its_commit() -> None:
    world = MembersWorld((1, 2))
    waiting = world.join(world.new_id())
    world.run_for(DELAY_MS + 1)
    member = waiting.one.member_id
    syncing = world.sync(member, 1, assign={member: b"A"})
    assert not syncing
    assert world.group.state is GroupState.COMPLETING_REBALANCE
    world.follow(2)
    assert syncing.one.assignment == b"A"


def test_an_assignment_that_cannot_be_written_starts_a_rebalance() -> None:
    world = MembersWorld((1, 2))
    waiting = world.join(world.new_id())
    world.run_for(DELAY_MS + 1)
    member = waiting.one.member_id
    world.follow(1)
    syncing = world.sync(member, 1, assign={member: b"A"})
    world.run_for(5_010)
    assert syncing.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group.state is GroupState.PREPARING_REBALANCE


def test_a_rebalance_does_not_answer_a_sync_that_failed_with_its_write() -> None:
    world = MembersWorld((1, 2), group_initial_rebalance_delay_ms=1_000)
    waiting = [world.join(world.new_id()) for _ in range(2)]
    world.run_for(2_100)
    leader = waiting[0].one.leader
    (follower,) = {each.one.member_id for each in waiting} - {leader}
    world.follow(1)
    world.commit(5, group="other")
    syncing = world.sync(follower, 1)
    world.run_for(5_010)
    assert syncing.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.run_for(SESSION_MS)
    assert leader not in world.group.members
    assert len(syncing) == 1


def test_a_group_that_cannot_be_written_does_not_exist() -> None:
    world = MembersWorld((1, 2), group_initial_rebalance_delay_ms=8_000)
    waiting = world.join(version=3)
    world.run_for(5_010)
    assert waiting.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group is None


# Sessions.


def test_a_member_without_heartbeats_is_removed(world: MembersWorld) -> None:
    member, silent = world.stable(2)
    world.keep_alive(SESSION_MS - 1_000, 1, member)
    assert world.heartbeat(member, 1) == ErrorCode.NONE
    world.run_for(1_001)
    assert world.heartbeat(member, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert silent not in world.group.members


def test_a_heartbeat_is_validated(world: MembersWorld) -> None:
    (member,) = world.stable()
    assert world.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(member, 0) == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat(member, 1, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_with_a_pending_join_needs_no_heartbeat(world: MembersWorld) -> None:
    leader, follower = world.stable(2)
    again = world.join(leader)
    world.keep_alive(SESSION_MS + 2_000, 1, follower)
    assert not again
    world.join(follower)
    assert again.one.generation_id == 2


def test_a_group_whose_members_expire_is_empty_and_accepts_new_members(world: MembersWorld) -> None:
    (member,) = world.stable()
    world.run_for(SESSION_MS + 1)
    assert world.group.state is GroupState.EMPTY
    assert world.heartbeat(member, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.begin()[0].generation_id == 3


# Leaving.


def test_a_leaving_member_is_removed_at_once(world: MembersWorld) -> None:
    leader, follower = world.stable(2)
    response = world.leave(leader).one
    assert [(each.member_id, each.error_code) for each in response.members] == [(leader, 0)]
    assert world.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(follower).one.leader == follower


def test_several_members_leave_in_one_request(world: MembersWorld) -> None:
    first, second = world.stable(2)
    pending = world.new_id()
    response = world.leave(first, "x", pending, second, ("", "nobody")).one
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.error_code for each in response.members] == [0, unknown, 0, 0, unknown]
    assert world.group.state is GroupState.EMPTY


def test_old_versions_remove_one_member(world: MembersWorld) -> None:
    (member,) = world.stable()
    assert world.leave("x", version=2).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave(member, version=2).error == ErrorCode.NONE


def test_leaving_an_unknown_group_fails_for_each_member(world: MembersWorld) -> None:
    response = world.leave("x", ("", "i")).one
    assert response.error_code == ErrorCode.NONE
    assert {each.error_code for each in response.members} == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_pending_requests_of_a_leaving_member_are_answered(world: MembersWorld) -> None:
    leader, follower = (each.member_id for each in world.begin(2))
    world.follow(1)
    world.commit(5, group="other")
    syncing = world.sync(follower, 1)
    world.leave(follower)
    assert syncing.error == ErrorCode.UNKNOWN_MEMBER_ID
    joining = world.join(world.new_id())
    world.leave(next(each for each in world.group.members if each != leader))
    assert joining.error == ErrorCode.UNKNOWN_MEMBER_ID


# Life of the coordinator.


def test_members_continue_after_a_failover(world: MembersWorld) -> None:
    leader, follower = world.stable(2)
    world.fail_over()
    assert world.heartbeat(leader, 1) == ErrorCode.NONE
    assert world.sync(follower, 1).one.assignment == b"for " + follower.encode()
    assert world.commit(7, generation=1, member=leader) == ErrorCode.NONE
    world.keep_alive(SESSION_MS + 1_000, 1, leader)
    assert follower not in world.group.members, "sessions begin anew, and end"


def test_an_empty_group_keeps_its_generation_after_a_failover(world: MembersWorld) -> None:
    (member,) = world.stable()
    world.leave(member)
    world.fail_over()
    assert world.group.state is GroupState.EMPTY
    assert world.begin()[0].generation_id == 3


def test_pending_requests_get_not_coordinator_when_the_leadership_is_lost(
    world: MembersWorld,
) -> None:
    joining = world.join(world.new_id())
    _, follower = world.begin(2, group="h")
    syncing = world.sync(follower.member_id, 1, group="h")
    joining = world.join(world.new_id())
    world.coordinator.runtime.on_resigned(0)
    assert joining.error == syncing.error == ErrorCode.NOT_COORDINATOR
    assert world.heartbeat(follower.member_id, 1, group="h") == ErrorCode.NOT_COORDINATOR


def test_heartbeats_succeed_while_the_groups_are_loaded(world: MembersWorld) -> None:
    (member,) = world.stable()
    world.coordinator = world.new_coordinator()
    world.coordinator.runtime.on_elected(0, 1)
    assert world.heartbeat(member, 1) == ErrorCode.NONE
    assert world.join().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.sync(member, 1).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.leave(member).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_loaded_group_above_group_max_size_is_rebalanced() -> None:
    world = MembersWorld()
    ids = world.stable(3)
    world.config = world.config.__class__(group_max_size=2)
    world.fail_over()
    assert world.heartbeat(ids[0], 1) == ErrorCode.REBALANCE_IN_PROGRESS
    waiting = [world.join(each) for each in ids]
    assert waiting[2].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(waiting[0].one.members) == 2


# Committing.


def test_a_commit_must_come_from_a_member_of_this_generation(world: MembersWorld) -> None:
    (member,) = world.stable()
    assert world.commit(5, generation=1, member=member) == ErrorCode.NONE
    assert world.commit(6, generation=0, member=member) == ErrorCode.ILLEGAL_GENERATION
    assert world.commit(6, generation=1, member="x") == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(6) == ErrorCode.UNKNOWN_MEMBER_ID, "others may not in a live group"
    world.join(world.new_id())
    assert world.commit(7, generation=1, member=member) == ErrorCode.NONE, "it may before it joins"
    world.join(member)
    assert world.commit(8, generation=2, member=member) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.committed()[1] == 7


def test_a_commit_keeps_the_member_alive(world: MembersWorld) -> None:
    (member,) = world.stable()
    for _ in range(3):
        world.run_for(SESSION_MS - 1_000)
        assert world.commit(5, generation=1, member=member) == ErrorCode.NONE
    assert world.heartbeat(member, 1) == ErrorCode.NONE


def test_an_empty_group_accepts_commits_without_a_membership(
    world: MembersWorld,
) -> None:
    (member,) = world.stable()
    world.leave(member)
    assert world.commit(5) == ErrorCode.NONE
    assert world.commit(6, generation=1, member=member) == ErrorCode.UNKNOWN_MEMBER_ID
