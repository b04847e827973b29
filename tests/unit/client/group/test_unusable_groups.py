"""Invalid responses of coordinators and leaders: errors and backoffs, no storms, no hangs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from barnabas.client.errors import BrokerError
from barnabas.client.group.assignor import Assignment
from barnabas.client.group.group_leader import write_assignment
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import SyncGroupResponse
from unit.client.group.member_story import BEAT, FIND, JOIN, SYNC, Story
from unit.client.group.modern_group import INTERVAL_MS, Group, T, answer
from unit.client.group.scripted_group import GONE

FUTURE = 9_999


@pytest.mark.parametrize(
    "changes", [{"generation_id": -1}, {"generation_id": -5}, {"member_id": ""}]
)
def test_a_join_response_without_a_member_is_an_error(changes: dict[str, Any]) -> None:
    story = Story()
    well = story.group.joined
    story.group.joined = lambda request: well(request, **changes)  # type: ignore[method-assign]
    story.host.poll_on()
    story.run(1_000)
    assert story.host.raised
    assert all(isinstance(error, BrokerError) for error in story.host.raised)
    assert not story.member.is_stable
    assert not story.group.sent(SYNC)
    # One attempt a poll.
    assert len(story.joins()) <= 21
    story.group.joined = well  # type: ignore[method-assign]
    story.until(lambda: story.member.is_stable)


def test_an_assignment_of_topics_without_subscription_is_rejected_with_backoff() -> None:
    story = Story()
    wrong = write_assignment(Assignment([TopicPartition("not-ours", 0)]))
    story.script(SYNC, *[SyncGroupResponse(error_code=0, assignment=wrong) for _ in range(100)])
    story.host.poll_on()
    story.run(5_000)
    joins = [
        at
        for at, request in zip(story.group.times, story.group.requests, strict=True)
        if request.__api_key__ == JOIN
    ]
    gaps = [later - earlier for earlier, later in itertools.pairwise(joins)]
    assert len(gaps) >= 4
    assert min(gaps) >= 80
    assert max(gaps) > 2 * min(gaps)


def test_a_negative_partition_of_an_assignment_is_an_error() -> None:
    story = Story()
    wrong = write_assignment(Assignment([TopicPartition("t", -1)]))
    story.script(SYNC, SyncGroupResponse(error_code=0, assignment=wrong))
    story.join()
    assert "invalid partition -1" in str(story.host.raised[0])
    assert story.host.owned == [0, 1, 2, 3]


@pytest.mark.parametrize("api_key", [FIND, JOIN, SYNC])
def test_unknown_error_codes_are_raised_and_the_member_continues(api_key: Any) -> None:
    story = Story()
    refusal = story.group._refusal
    story.group._refusal = (  # type: ignore[method-assign]
        lambda request, _code: refusal(request, FUTURE)  # type: ignore[arg-type]
    )
    story.script(api_key, ErrorCode.UNKNOWN_SERVER_ERROR)
    story.join()
    (error,) = story.host.raised
    assert f"error code {FUTURE}" in str(error)
    assert story.member.is_stable


def test_an_unknown_error_code_of_a_heartbeat_is_raised_and_the_member_stays() -> None:
    story = Story(heartbeat_interval_ms=100).join()
    refusal = story.group._refusal
    story.group._refusal = (  # type: ignore[method-assign]
        lambda request, _code: refusal(request, FUTURE)  # type: ignore[arg-type]
    )
    story.script(BEAT, ErrorCode.UNKNOWN_SERVER_ERROR)
    story.until(lambda: bool(story.host.raised))
    assert f"error code {FUTURE}" in str(story.host.raised[0])
    story.run(2_000)
    assert len(story.host.raised) == 1
    assert story.member.is_stable


def test_a_coordinator_that_disappeared_triggers_a_metadata_refresh() -> None:
    story = Story().join()
    before = story.group.updates_requested
    story.script(BEAT, GONE)
    story.until(lambda: story.group.updates_requested > before)


@pytest.mark.parametrize("interval_ms", [0, -1, -(2**31)])
def test_a_heartbeat_interval_of_zero_or_less_is_ignored(interval_ms: int) -> None:
    group = Group().joined()

    def hurried(request: Any) -> Any:
        response = answer(request, group.epoch)
        response.heartbeat_interval_ms = interval_ms
        return response

    beat = group.broker.answers
    for key in beat:
        beat[key] = lambda request: (group.heard.append(request), hurried(request))[1]
    group.run(10 * INTERVAL_MS)
    assert 5 <= len(group.heard) <= 15


def test_negative_partitions_of_an_assignment_are_left_out() -> None:
    group = Group().joined()
    group.give({T: [-1, 2, -7]})
    group.run(3 * INTERVAL_MS)
    assert [tp.partition for tp in group.host.owned_partitions] == [2]


def test_an_unknown_error_code_ends_a_membership_of_the_consumer_protocol() -> None:
    group = Group().joined()
    response = answer(type("Request", (), {"member_id": "m"}), -1, code=FUTURE)
    group.say = [response]
    with pytest.raises(BrokerError, match=f"error code {FUTURE}"):
        group.run(3 * INTERVAL_MS)
