"""A member under the classic protocol, with scripted responses of its coordinator."""

from __future__ import annotations

import pytest

from barnabas.client.connections.connections import Call
from barnabas.client.errors import ClientConfigError, ClientError
from barnabas.client.group.group_calls import GroupCalls
from barnabas.client.group.group_leader import read_subscription
from barnabas.client.group.membership import GroupGeneration
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import JoinGroupResponse
from unit.client.group.group_host import GroupHost
from unit.client.group.member_story import BEAT, FIND, JOIN, LEAVE, SYNC, CooperativeRange, Story
from unit.client.group.scripted_group import NODE, ScriptedGroup


def test_a_member_finds_its_coordinator_joins_and_takes_its_partitions() -> None:
    story = Story().join()
    assert [request.__api_key__ for request in story.group.requests][:3] == [FIND, JOIN, SYNC]
    assert story.group.apart[:3] == [False, True, True]
    assert story.host.told == [("assign", [0, 1, 2, 3])]
    assert story.member.generation == GroupGeneration("g", 1, "member-1")
    assert not story.host.raised


def test_the_join_contains_the_configured_values() -> None:
    keys = {"session_timeout_ms": 7000, "max_poll_interval_ms": 9000, "client_rack": "b"}
    story = Story(topics=("t", "s"), group_instance_id="i", **keys).join()
    (request,) = story.joins()
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (7000, 9000)
    assert (request.group_instance_id, request.protocol_type) == ("i", "consumer")
    subscription = read_subscription(request.protocols[0].metadata)
    assert subscription.topics == ["s", "t"]
    assert subscription.rack_id == "b"
    assert subscription.generation_id == -1


def test_the_next_join_has_the_owned_partitions_and_their_generation() -> None:
    story = Story(partition_assignment_strategy=[CooperativeRange]).join()
    story.member.request_rejoin("for a test")
    story.until(lambda: len(story.joins()) == 2)
    request = story.joins()[1]
    subscription = read_subscription(request.protocols[0].metadata)
    assert [tp.partition for tp in subscription.owned_partitions] == [0, 1, 2, 3]
    assert subscription.generation_id == 1
    assert (request.member_id, request.reason) == ("member-1", "for a test")


def test_a_member_id_from_the_broker_is_used_in_the_next_join() -> None:
    story = Story()
    required = JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED,
        protocol_name=None,
        leader="",
        member_id="named",
        members=[],
    )
    story.script(JOIN, required)
    story.join()
    assert [request.member_id for request in story.joins()] == ["", "named"]
    assert "named" in story.joins()[1].reason
    assert story.host.told == [("assign", [0, 1, 2, 3])]


def test_an_old_broker_receives_its_own_versions() -> None:
    story = Story()
    story.group.versions = {JOIN: 0, SYNC: 0, BEAT: 0, LEAVE: 0}
    story.join()
    story.run(4_000)
    story.host.leave()
    story.until(lambda: ("left", []) in story.host.told)
    assert story.group.sent(LEAVE)[0].member_id == "member-1"


def test_a_static_name_on_a_broker_without_them_is_an_error() -> None:
    story = Story(group_instance_id="i")
    story.group.versions = {JOIN: 4}
    story.host.poll_on()
    story.until(lambda: bool(story.host.raised))


def test_heartbeats_continue_between_polls() -> None:
    story = Story(heartbeat_interval_ms=1000).join()
    story.host.polls = False
    story.forget_the_past()
    story.run(10_500)
    beats = story.group.sent(BEAT)
    assert len(beats) == 10
    assert (beats[0].generation_id, beats[0].member_id) == (1, "member-1")


def test_one_heartbeat_is_in_flight_until_the_session_timeout() -> None:
    story = Story(heartbeat_interval_ms=100, session_timeout_ms=500).join()
    story.forget_the_past()
    story.script(BEAT, None)
    story.run(2_000)
    assert len(story.group.sent(BEAT)) == 1


def test_a_rebalance_reported_by_a_heartbeat_wakes_the_poll() -> None:
    story = Story().join()
    story.forget_the_past()
    story.script(BEAT, ErrorCode.REBALANCE_IN_PROGRESS)
    woken = story.host.wakes
    story.until(lambda: len(story.host.told) == 3)
    assert story.host.wakes > woken
    assert story.host.told == [
        ("commit", [0, 1, 2, 3]),
        ("revoke", [0, 1, 2, 3]),
        ("assign", [0, 1, 2, 3]),
    ]
    assert story.joins()[0].reason == "group is already rebalancing"
    # The commit and the callback still speak as the old generation.
    assert [each.generation_id for each in story.host.spoken[-3:]] == [1, 1, 2]


def test_the_preparation_runs_once_even_if_the_callback_raises() -> None:
    story = Story().join()
    story.forget_the_past()
    story.host.will_raise["revoke"] = RuntimeError("mine")
    story.script(JOIN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    story.member.request_rejoin("for a test")
    story.until(lambda: "assign" in story.host.names)
    assert [str(error) for error in story.host.raised] == ["mine"]
    assert story.host.names == ["commit", "revoke", "assign"]


def test_a_join_waits_for_the_commit_before_it() -> None:
    story = Story().join()
    story.forget_the_past()
    story.host.holds = {"commit"}
    story.member.request_rejoin("for a test")
    story.run(1_000)
    assert story.host.names == ["commit"]
    assert not story.joins()
    woken = story.host.wakes
    story.host.held["commit"]()
    assert story.host.wakes > woken
    story.until(lambda: "assign" in story.host.names)
    assert story.host.names == ["commit", "revoke", "assign"]


def test_the_result_of_a_join_is_kept_until_the_callback_returned() -> None:
    story = Story()
    story.host.will_raise["assign"] = RuntimeError("mine")
    story.host.poll_on()
    story.until(lambda: len(story.host.told) == 2)
    assert [str(error) for error in story.host.raised] == ["mine"]
    assert story.host.told == [("assign", [0, 1, 2, 3]), ("assign", [])]
    assert len(story.joins()) == 1
    assert story.host.owned == [0, 1, 2, 3]


def test_a_user_that_does_not_poll_leaves_the_group() -> None:
    story = Story(max_poll_interval_ms=5_000).join()
    story.forget_the_past()
    story.host.polls = False
    story.run(5_100)
    (left,) = story.group.sent(LEAVE)
    assert left.members[0].member_id == "member-1"
    assert left.members[0].reason == "consumer poll timeout has expired."
    beats = len(story.group.sent(BEAT))
    story.run(10_000)
    assert len(story.group.sent(BEAT)) == beats
    story.host.polls = True
    story.until(lambda: "assign" in story.host.names)
    assert story.host.told[0] == ("lose", [0, 1, 2, 3])
    assert story.joins()[0].member_id == ""


def test_a_user_that_waits_for_records_counts_as_polling() -> None:
    story = Story(max_poll_interval_ms=1_000, heartbeat_interval_ms=3_000).join()
    now = story.group.runtime.clock.monotonic_ms()
    deadline = story.member.next_deadline_ms()
    assert deadline is not None
    assert deadline - now <= 500


def test_a_user_that_polls_stays_however_long_ago_it_joined() -> None:
    story = Story(max_poll_interval_ms=1_000).join()
    story.forget_the_past()
    story.run(10_000)
    assert not story.group.sent(LEAVE)
    assert story.member.is_stable


def test_a_poll_counts_while_the_coordinator_is_unknown() -> None:
    story = Story(max_poll_interval_ms=5_000, heartbeat_interval_ms=1_000).join()
    story.forget_the_past()
    before = story.member.generation
    story.host.coordinators.forget("g")
    story.script(FIND, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1_000)
    story.run(8_000)
    assert story.group.sent(FIND)
    story.script(FIND)
    story.run(2_000)
    assert not story.group.sent(LEAVE)
    assert not story.joins()
    assert story.member.generation == before
    assert story.member.is_stable


def test_the_end_of_a_slow_join_counts_as_a_poll() -> None:
    story = Story(max_poll_interval_ms=5_000)
    answer, joins = story.group.call, []

    def hold_joins(node_id: int, call: Call, *, apart: bool = False) -> None:
        if call.api_key == JOIN:
            joins.append(call)
        else:
            answer(node_id, call, apart=apart)

    story.group.call = hold_joins  # type: ignore[method-assign]
    story.host.poll_on()
    story.until(lambda: bool(joins))
    story.host.polls = False
    story.run(5_500)
    answer(NODE, joins[0], apart=True)
    story.run(4_500)
    assert not story.group.sent(LEAVE)
    story.host.polls = True
    story.until(lambda: "assign" in story.host.names)
    assert len(joins) == 1


def test_a_pattern_is_matched_again_before_every_join() -> None:
    story = Story().join()
    for joins in (2, 3):
        story.forget_the_past()
        story.member.request_rejoin("for a test")
        story.until(lambda: "assign" in story.host.names)
        assert story.host.patterns_matched == joins


def test_eager_members_revoke_all_partitions_before_they_join() -> None:
    story = Story().join()
    story.forget_the_past()
    story.member.request_rejoin("for a test")
    story.until(lambda: bool(story.joins()))
    assert story.host.told == [("commit", [0, 1, 2, 3]), ("revoke", [0, 1, 2, 3])]
    assert not read_subscription(story.joins()[0].protocols[0].metadata).owned_partitions


def test_cooperative_members_keep_unmoved_partitions_and_rejoin() -> None:
    story = Story(partition_assignment_strategy=[CooperativeRange]).join()
    story.forget_the_past()
    CooperativeRange.most = 2
    try:
        story.member.request_rejoin("for a test")
        story.until(lambda: len(story.joins()) == 2 and story.member.is_stable)
        story.run(100)
    finally:
        CooperativeRange.most = 99
    assert story.host.told == [
        ("commit", []),
        ("commit", [2, 3]),
        ("revoke", [2, 3]),
        ("assign", []),
        ("commit", []),
        ("assign", []),
    ]
    assert story.joins()[1].reason.startswith("need to revoke partitions [t-2, t-3]")
    # Offsets of partitions that are revoked after the join are committed in the new generation.
    assert [each.generation_id for each in story.host.spoken[-6:-3]] == [1, 2, 2]


def test_cooperative_members_revoke_unsubscribed_partitions_before_the_join() -> None:
    story = Story(topics=("t", "s"), partition_assignment_strategy=[CooperativeRange])
    story.group.set_partitions("s", 1)
    story.join()
    story.forget_the_past()
    story.host.subscribed_topics = ["t"]
    story.member.on_subscription_changed()
    story.until(lambda: "assign" in story.host.names)
    assert story.host.told == [("commit", [0]), ("revoke", [0]), ("assign", [])]
    assert story.joins()[0].reason == "the subscription has changed since the last join"


def test_an_unchanged_subscription_causes_no_join() -> None:
    story = Story().join()
    story.forget_the_past()
    story.member.on_subscription_changed()
    story.run(1_000)
    assert not story.joins()


def test_a_leader_rejoins_when_a_topic_has_more_partitions() -> None:
    story = Story().join()
    story.forget_the_past()
    story.group.set_partitions("t", 6)
    story.until(lambda: "assign" in story.host.names)
    assert story.host.owned == [0, 1, 2, 3, 4, 5]
    assert story.joins()[0].reason == "cached metadata has changed since the last assignment"


def test_a_leader_refreshes_metadata_at_metadata_max_age() -> None:
    story = Story(metadata_max_age_ms=1_000).join()
    story.group.on_refresh = [lambda: story.group.set_partitions("t", 5)]
    story.until(lambda: story.host.owned == [0, 1, 2, 3, 4])
    assert story.group.refreshes == 1


def test_a_leader_soon_notices_the_creation_of_a_missing_topic() -> None:
    story = Story(topics=("later", "t")).join()
    assert story.host.owned == [0, 1, 2, 3]
    refreshes = story.group.refreshes
    story.run(3_000)
    assert 2 <= story.group.refreshes - refreshes <= 4
    story.group.on_refresh = [lambda: story.group.set_partitions("later", 1)]
    story.until(lambda: len(story.host.owned) == 5, 3_000)


def test_a_leader_requests_metadata_of_other_members_topics_before_it_assigns() -> None:
    story = Story(topics=("t", "other"))
    story.group.on_refresh = [lambda: story.group.set_partitions("other", 1)]
    story.join()
    assert len(story.host.owned) == 5


def test_a_leader_that_skips_the_assignment_sends_no_assignment() -> None:
    story = Story(group_instance_id="i").join()
    story.forget_the_past()
    again = story.group.joined
    story.group.joined = lambda request: again(request, skip_assignment=True)  # type: ignore[method-assign]
    story.member.request_rejoin("for a test")
    story.until(lambda: "assign" in story.host.names)
    assert not story.group.sent(SYNC)[0].assignments
    assert story.host.owned == [0, 1, 2, 3]


def test_an_assignment_of_other_topics_is_rejected_and_the_member_rejoins() -> None:
    story = Story(partition_assignment_strategy=[CooperativeRange])
    story.group.set_partitions("other", 1)
    story.host.poll()
    CooperativeRange.beside = "other"
    try:
        story.host.poll_on()
        story.until(lambda: len(story.joins()) == 2)
    finally:
        CooperativeRange.beside = None
    assert "assign" not in story.host.names
    story.until(lambda: "assign" in story.host.names)
    assert story.joins()[1].reason == "received assignment does not match the current subscription"


def test_the_exception_of_an_assignor_is_raised_by_poll() -> None:
    story = Story(partition_assignment_strategy=[CooperativeRange])
    CooperativeRange.most = -1
    try:
        story.host.poll_on()
        story.until(lambda: bool(story.host.raised))
    finally:
        CooperativeRange.most = 99
    assert str(story.host.raised[0]) == "the assignor failed"


def test_leaving_revokes_partitions_and_sends_leave_group() -> None:
    story = Story().join()
    story.forget_the_past()
    story.host.leave()
    story.until(lambda: ("left", []) in story.host.told)
    assert story.host.told == [("revoke", [0, 1, 2, 3]), ("left", [])]
    (request,) = story.group.sent(LEAVE)
    assert request.members[0].reason == "the consumer is being closed"
    story.run(20_000)
    assert not story.group.sent(BEAT)


def test_a_removed_member_that_leaves_loses_its_partitions() -> None:
    story = Story().join()
    story.host.polls = False
    story.forget_the_past()
    story.script(BEAT, ErrorCode.UNKNOWN_MEMBER_ID)
    story.until(lambda: story.member.generation.generation_id == -1)
    story.host.leave()
    story.run(100)
    assert story.host.told == [("lose", [0, 1, 2, 3]), ("left", [])]


def test_a_static_member_leaves_without_a_request() -> None:
    story = Story(group_instance_id="i").join()
    story.forget_the_past()
    story.host.leave()
    assert story.host.told == [("revoke", [0, 1, 2, 3]), ("left", [])]
    assert not story.group.requests


def test_leaving_during_a_join_does_not_wait_behind_it() -> None:
    story = Story().join()
    story.script(JOIN, None)
    story.member.request_rejoin("for a test")
    story.run(100)
    story.forget_the_past()
    story.host.leave()
    story.until(lambda: ("left", []) in story.host.told)
    assert story.group.apart == [False]


def test_leaving_before_the_join_completes_immediately() -> None:
    story = Story()
    story.host.leave()
    assert story.host.told == [("left", [])]


def test_a_stopped_member_sends_no_requests() -> None:
    story = Story().join()
    story.host.polls = False
    story.forget_the_past()
    story.member.stop()
    story.run(100_000)
    assert not story.group.requests


def test_a_group_id_is_required() -> None:
    group = ScriptedGroup(group_id=None)
    with pytest.raises(ClientConfigError, match=r"group\.id"):
        GroupHost(group)


def test_calls_discard_a_moved_coordinator() -> None:
    group = ScriptedGroup()
    calls = GroupCalls(group, group.coordinators, "g")  # type: ignore[arg-type]
    assert not calls.is_coordinator_known
    errors: list[ClientError | None] = []
    group.coordinators.find("g", lambda _node, error: errors.append(error))
    group.world.run_for(10)
    assert calls.is_coordinator_known
    assert errors == [None]


def test_a_step_that_ends_after_leaving_has_no_effect() -> None:
    story = Story().join()
    story.host.holds = {"commit"}
    story.member.request_rejoin("for a test")
    story.until(lambda: "commit" in story.host.held)
    story.host.leave()
    story.host.told.clear()
    story.host.held["commit"]()
    story.run(1_000)
    assert story.host.told == [("left", [])]


def test_a_cooperative_member_removed_during_a_commit_loses_all_partitions() -> None:
    story = Story(partition_assignment_strategy=[CooperativeRange]).join()
    story.forget_the_past()
    CooperativeRange.most = 2
    try:
        story.member.request_rejoin("for a test")
        story.until(lambda: story.member.generation.generation_id == 2)
        story.host.holds = {"commit"}
        story.until(lambda: "commit" in story.host.held)
        story.script(BEAT, ErrorCode.UNKNOWN_MEMBER_ID)
        story.until(lambda: story.member.generation.generation_id == -1)
        story.host.holds.clear()
        story.host.held["commit"]()
        story.until(lambda: "assign" in story.host.names)
    finally:
        CooperativeRange.most = 99
    assert story.host.names == ["commit", "commit", "lose", "assign"]
