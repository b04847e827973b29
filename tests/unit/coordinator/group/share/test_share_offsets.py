"""Offsets of share groups: describe, alter, delete; deletion of groups and topics."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from unit.coordinator.shares_world import SharesWorld


class JointWorld(SharesWorld):
    """A coordinator whose writes share batches, as on a broker."""

    shares_batches = True


@pytest.fixture
def world() -> SharesWorld:
    made = SharesWorld()
    made.create_topic("a", 2)
    made.create_topic("b", 1)
    return made


def empty_group(world: SharesWorld) -> None:
    """Create a group that has had a member with topics a and b."""
    world.share_beat("m1", 0, "a", "b")
    world.share_beat("m1", -1)


def errors(response) -> dict[str, int]:
    return {each.topic_name: each.error_code for each in response.responses}


def test_lags_are_counted_from_the_start_offset(world: SharesWorld) -> None:
    world.alter(a={0: 10, 1: 20})
    world.latest_offsets.offsets = {("a", 0): 25, ("a", 1): ErrorCode.LEADER_NOT_AVAILABLE}
    world.share_store.complete[("g", world.id_of("a"), 0)] = 4
    assert world.offsets() == {
        "a": {0: (10, 11, 0), 1: (0, -1, ErrorCode.LEADER_NOT_AVAILABLE)},
    }


def test_a_lag_beyond_64_bits_wraps_around(world: SharesWorld) -> None:
    smallest, largest = -(1 << 63), (1 << 63) - 1
    world.alter(a={0: smallest, 1: largest})
    world.latest_offsets.offsets = {("a", 0): 25, ("a", 1): 0}
    assert world.offsets() == {"a": {0: (smallest, smallest + 25, 0), 1: (largest, -largest, 0)}}


def test_unknown_partitions_have_no_offset(world: SharesWorld) -> None:
    world.share_beat("m1", 0, "a")
    missing = (-1, -1, 0)
    assert world.offsets(a=[0, 2, 0], b=[0], x=[7]) == {
        "a": {0: missing, 2: missing},
        "b": {0: missing},
        "x": {7: missing},
    }
    assert world.offsets("no such group") == {}


def test_altered_offsets_of_a_new_group_are_initialized(world: SharesWorld) -> None:
    response = world.alter(a={1: 5, 2: 6}, x={0: 1})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in response.responses
        for each in topic.partitions
    }
    assert found == {("x", 0): unknown, ("a", 1): 0, ("a", 2): unknown}
    assert world.start_offsets() == {("a", 1): 5}
    assert world.describe_shares().group_state == "Empty"
    world.restart()
    world.latest_offsets.offsets = {("a", 1): 7}
    assert world.offsets() == {"a": {1: (5, 2, 0)}}


def test_altered_offsets_are_recorded_before_the_response() -> None:
    world = JointWorld()
    world.create_topic("a", 1)
    world.alter(a={0: 5})
    # No turn of the loop has passed since the response.
    world.latest_offsets.offsets = {("a", 0): 7}
    assert world.offsets() == {"a": {0: (5, 2, 0)}}


def test_errors_of_the_share_coordinators_are_in_the_response(world: SharesWorld) -> None:
    world.share_store.failing[1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ((topic),) = world.alter(a={0: 5, 1: 6}).responses
    assert [each.error_code for each in topic.partitions] == [
        0,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ]
    assert world.offsets() == {}


def test_negative_partitions_are_not_remembered(world: SharesWorld) -> None:
    # Kafka sends the same error, but cannot delete the group afterwards.
    assert world.alter(a={0: 1, -1: 1}).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.describe_shares().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_groups_with_members_do_not_change(world: SharesWorld) -> None:
    world.share_beat("m1", 0, "a")
    assert world.alter(a={0: 5}).error_code == ErrorCode.NON_EMPTY_GROUP
    assert world.forget("a").error_code == ErrorCode.NON_EMPTY_GROUP
    assert world.alter("", a={0: 5}).error_code == ErrorCode.INVALID_GROUP_ID
    assert world.forget("a", group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert world.forget("a", group="x").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_deleted_offsets_are_initialized_again_by_the_next_member(world: SharesWorld) -> None:
    empty_group(world)
    assert errors(world.forget("a")) == {"a": 0}
    assert world.start_offsets() == {("b", 0): -1}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(world.forget("a", "x")) == {"a": unknown, "x": unknown}
    world.share_beat("m1", 0, "a")
    assert world.start_offsets() == {("a", 0): -1, ("a", 1): -1, ("b", 0): -1}


def test_a_failed_deletion_can_be_repeated(world: SharesWorld) -> None:
    empty_group(world)
    world.share_store.failing[1] = ErrorCode.NOT_COORDINATOR
    assert errors(world.forget("a", "b")) == {"b": 0, "a": ErrorCode.NOT_COORDINATOR}
    world.share_store.failing.clear()
    assert errors(world.forget("a")) == {"a": 0}
    assert world.start_offsets() == {}


def test_a_deleted_group_loses_its_state(world: SharesWorld) -> None:
    empty_group(world)
    world.share_store.failing[1] = ErrorCode.NOT_COORDINATOR
    assert world.delete("g") == [ErrorCode.NOT_COORDINATOR]
    assert world.describe_shares().error_code == 0
    world.share_store.failing.clear()
    assert world.delete("g") == [0]
    assert world.start_offsets() == {}
    assert world.describe_shares().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    world.restart()
    assert world.describe_shares().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted(world: SharesWorld) -> None:
    world.share_beat("m1", 0, "a")
    assert world.delete("g") == [ErrorCode.NON_EMPTY_GROUP]


def test_deleted_topics_lose_their_state(world: SharesWorld) -> None:
    empty_group(world)
    world.delete_topic("a")
    world.coordinator.on_topics_deleted({"a": world.id_of("a")})
    world.run_for(10)
    world.create_topic("a", 2)
    # The recreated topic has the same id in this test: only the record has forgotten it.
    assert world.offsets().keys() == {"b"}


def test_share_groups_are_listed_with_their_type(world: SharesWorld) -> None:
    empty_group(world)
    world.share_beat("m1", 0, "a", group="h")
    world.subscribe("c1", "a", group="c")
    assert {each[0] for each in world.list_groups(types=("Share",))} == {"g", "h"}
    assert world.list_groups(types=("share",), states=("stable",)) == [
        ("h", "share", "Stable", "share")
    ]
