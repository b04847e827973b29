"""A member under the classic protocol: each error, and late responses."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from barnabas.client.errors import BrokerError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from unit.client.group.member_story import BEAT, FIND, JOIN, SYNC, Story
from unit.client.group.scripted_group import GONE


def test_a_search_for_the_coordinator_waits_between_attempts() -> None:
    story = Story()
    story.script(FIND, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3, GONE)
    story.join()
    times = story.group.times[:5]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(gap >= 80 for gap in gaps)
    assert gaps[2] > gaps[0]
    assert len(story.group.sent(FIND)) == 5


def test_a_refused_coordinator_lookup_is_raised_by_poll_and_repeated() -> None:
    story = Story()
    story.script(FIND, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    story.join()
    (error,) = story.host.raised
    assert isinstance(error, BrokerError)
    assert error.error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("api_key", "code", "attempts"),
    [
        (JOIN, ErrorCode.UNKNOWN_MEMBER_ID, 3),
        (JOIN, ErrorCode.ILLEGAL_GENERATION, 3),
        (JOIN, ErrorCode.REBALANCE_IN_PROGRESS, 3),
        (SYNC, ErrorCode.UNKNOWN_MEMBER_ID, 3),
        (SYNC, ErrorCode.ILLEGAL_GENERATION, 3),
        (SYNC, ErrorCode.REBALANCE_IN_PROGRESS, 3),
    ],
)
def test_the_member_rejoins_at_once_on_some_errors(
    api_key: ApiKey, code: ErrorCode, attempts: int
) -> None:
    story = Story()
    story.script(api_key, *[code] * (attempts - 1))
    story.join()
    assert not story.host.raised
    assert len(story.joins()) == attempts
    assert story.group.world.scheduler.now_ms < 400


@pytest.mark.parametrize("api_key", [JOIN, SYNC])
@pytest.mark.parametrize(
    "error",
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
     ErrorCode.NOT_COORDINATOR, GONE],
    ids=str,
)  # fmt: skip
def test_the_member_rejoins_after_a_backoff_on_other_retriable_errors(
    api_key: ApiKey, error: Any
) -> None:
    story = Story()
    story.script(api_key, error, error)
    story.join()
    assert not story.host.raised
    joins = [t for r, t in zip(story.group.requests, story.group.times, strict=True)
             if r.__api_key__ == JOIN]  # fmt: skip
    assert len(joins) == 3
    assert all(later - earlier >= 80 for earlier, later in itertools.pairwise(joins))
    searches = 1 if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else 3
    assert len(story.group.sent(FIND)) == searches


@pytest.mark.parametrize("api_key", [JOIN, SYNC])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_other_errors_are_raised_by_poll(api_key: ApiKey, code: ErrorCode) -> None:
    story = Story()
    story.script(api_key, code)
    story.host.poll_on()
    story.until(lambda: bool(story.host.raised))
    (error,) = story.host.raised
    assert isinstance(error, BrokerError)
    assert error.error_code is code


def test_repeated_immediate_refusals_are_retried_with_backoff() -> None:
    story = Story()
    story.script(JOIN, *[ErrorCode.UNKNOWN_MEMBER_ID] * 1000)
    story.host.poll_on()
    story.run(10_000)
    assert len(story.joins()) < 30


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, GONE], ids=str)
def test_a_heartbeat_error_of_a_moved_coordinator_starts_a_lookup(error: Any) -> None:
    story = Story().join()
    story.forget_the_past()
    story.script(BEAT, error)
    story.run(4_000)
    kinds = [request.__api_key__ for request in story.group.requests]
    assert kinds == [BEAT, FIND, BEAT]
    assert story.member.is_stable
    assert not story.host.raised


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "member-1")],
)
def test_a_removed_member_loses_its_partitions(code: ErrorCode, member_id: str) -> None:
    story = Story().join()
    story.forget_the_past()
    story.script(BEAT, code)
    story.until(lambda: len(story.host.told) == 2)
    assert story.host.told == [("lose", [0, 1, 2, 3]), ("assign", [0, 1, 2, 3])]
    assert story.joins()[0].member_id == member_id
    assert not story.host.raised


def test_poll_of_a_fenced_static_member_raises_and_partitions_are_lost() -> None:
    story = Story(group_instance_id="i").join()
    story.forget_the_past()
    story.script(BEAT, ErrorCode.FENCED_INSTANCE_ID)
    story.until(lambda: bool(story.host.raised))
    assert not story.host.told
    story.until(lambda: bool(story.host.told))
    assert story.host.told[0] == ("lose", [0, 1, 2, 3])


def test_a_commit_error_of_an_earlier_generation_is_ignored() -> None:
    story = Story().join()
    before = story.member.generation
    story.member.request_rejoin("for a test")
    story.until(lambda: story.host.names.count("assign") == 2)
    error = broker_error(ErrorCode.ILLEGAL_GENERATION, "commit")
    story.member.on_commit_error(error, before)
    assert story.member.is_stable
    story.member.on_commit_error(error, story.member.generation)
    assert not story.member.is_stable
    story.until(lambda: story.member.is_stable)
    assert "lose" in story.host.names


def test_a_commit_refused_for_a_rebalance_makes_the_member_rejoin() -> None:
    story = Story().join()
    error = broker_error(ErrorCode.REBALANCE_IN_PROGRESS, "commit")
    story.member.on_commit_error(error, story.member.generation)
    assert story.member.is_stable
    story.until(lambda: story.member.generation.generation_id == 2)
    assert "lose" not in story.host.names


def test_a_member_removed_while_it_commits_loses_its_partitions() -> None:
    story = Story().join()
    story.forget_the_past()
    story.host.holds = {"commit"}
    story.member.request_rejoin("for a test")
    story.until(lambda: "commit" in story.host.held)
    story.script(BEAT, ErrorCode.UNKNOWN_MEMBER_ID)
    story.until(lambda: story.member.generation.generation_id == -1)
    story.host.held["commit"]()
    story.until(lambda: "assign" in story.host.names)
    assert story.host.names == ["commit", "lose", "assign"]


def test_a_generation_lost_before_its_assignment_is_applied_leads_to_a_rejoin() -> None:
    story = Story(heartbeat_interval_ms=100)
    story.script(BEAT, ErrorCode.UNKNOWN_MEMBER_ID)
    story.host.poll_on()
    story.until(lambda: bool(story.joins()))
    story.host.polls = False
    story.run(300)
    assert story.member.generation.generation_id == -1
    story.host.polls = True
    story.until(lambda: "assign" in story.host.names)
    assert story.member.is_stable
    assert len(story.joins()) == 2


def test_a_generation_lost_during_sync_is_joined_again_at_once() -> None:
    story = Story(heartbeat_interval_ms=100)
    story.script(SYNC, None)
    story.script(BEAT, ErrorCode.ILLEGAL_GENERATION)
    story.host.poll_on()
    story.until(lambda: story.member.generation.member_id != "" and bool(story.group.sent(BEAT)))
    story.run(50)
    assert not story.member.is_stable
