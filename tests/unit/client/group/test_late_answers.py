"""Responses that arrive after the group removed the member, or in another generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.errors import broker_error
from barnabas.client.group.membership import GroupGeneration
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import SyncGroupResponse
from unit.client.group.member_story import BEAT, JOIN, SYNC, Story

if TYPE_CHECKING:
    from barnabas.client.connections.connections import Call
    from barnabas.protocol.api_keys import ApiKey


def holding(story: Story, api_key: ApiKey) -> list[Call]:
    """Keep the calls of an API, so that the test can respond later."""
    held: list[Call] = []
    answer = story.group.call

    def call(node_id: int, call: Call, *, apart: bool = False) -> None:
        if call.api_key is api_key:
            held.append(call)
        else:
            answer(node_id, call, apart=apart)

    story.group.call = call  # type: ignore[method-assign]
    return held


def refusal(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


def test_a_refusal_of_an_earlier_generation_keeps_the_member_id() -> None:
    story = Story(heartbeat_interval_ms=100).join()
    held = holding(story, SYNC)
    story.script(BEAT, ..., ErrorCode.ILLEGAL_GENERATION)
    story.member.request_rejoin("for a test")
    story.until(lambda: bool(held) and story.member.generation.generation_id == -1)
    story.forget_the_past()
    held[0].on_done(refusal(ErrorCode.UNKNOWN_MEMBER_ID), None)
    story.until(lambda: bool(story.joins()))
    # With ILLEGAL_GENERATION the coordinator knows the member all the same.
    assert story.joins()[0].member_id == "member-1"


def test_a_refusal_of_the_current_generation_removes_the_member_id() -> None:
    story = Story().join()
    story.script(SYNC, ErrorCode.UNKNOWN_MEMBER_ID)
    story.forget_the_past()
    story.member.request_rejoin("for a test")
    story.until(lambda: len(story.joins()) == 2)
    assert [join.member_id for join in story.joins()] == ["member-1", ""]


def test_an_assignment_for_a_removed_member_is_not_applied() -> None:
    story = Story(heartbeat_interval_ms=100).join()
    held = holding(story, SYNC)
    story.script(BEAT, ..., ErrorCode.UNKNOWN_MEMBER_ID)
    story.member.request_rejoin("for a test")
    story.until(lambda: bool(held) and story.member.generation.generation_id == -1)
    story.forget_the_past()
    held[0].on_done(story.group._answer(held[0].build(5)), None)
    story.until(lambda: bool(story.joins()))
    assert story.joins()[0].member_id == ""
    assert "assign" not in story.host.names


def test_the_join_of_a_removed_member_is_repeated() -> None:
    story = Story().join()
    held = holding(story, JOIN)
    story.member.request_rejoin("for a test")
    story.until(lambda: bool(held))
    story.member.on_commit_error(
        broker_error(ErrorCode.UNKNOWN_MEMBER_ID, "commit"), story.member.generation
    )
    assert story.member.generation.generation_id == -1
    held[0].on_done(story.group._answer(held[0].build(9)), None)
    story.until(lambda: len(held) == 2)
    assert not story.member.is_stable
    assert held[1].build(9).member_id == ""


def test_an_error_of_another_generation_keeps_the_member() -> None:
    story = Story().join()
    before = GroupGeneration("g", 0, "member-1")
    error = broker_error(ErrorCode.UNKNOWN_MEMBER_ID, "HEARTBEAT")
    story.member._on_heartbeat(error, before)
    story.member.on_commit_error(error, before)
    assert story.member.is_stable
    story.member.on_commit_error(error, story.member.generation)
    assert not story.member.is_stable


def test_a_member_removed_during_its_commit_loses_its_partitions() -> None:
    story = Story(heartbeat_interval_ms=100).join()
    story.forget_the_past()
    story.host.holds = {"commit"}
    story.member.request_rejoin("for a test")
    story.until(lambda: "commit" in story.host.held)
    story.script(BEAT, ErrorCode.UNKNOWN_MEMBER_ID)
    story.until(lambda: story.member.generation.generation_id == -1)
    story.host.holds.clear()
    story.host.held["commit"]()
    story.until(lambda: "assign" in story.host.names)
    assert story.host.names == ["commit", "lose", "assign"]


def test_a_removed_member_does_not_commit_before_it_rejoins() -> None:
    story = Story(heartbeat_interval_ms=100).join()
    story.forget_the_past()
    story.script(BEAT, ErrorCode.UNKNOWN_MEMBER_ID)
    story.until(lambda: "assign" in story.host.names)
    assert story.host.names == ["lose", "assign"]
