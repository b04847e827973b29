"""Heartbeats of share groups: epochs, assignments, initialization, errors, timeouts and loading."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.group_base import NAMES_LENGTH_MAX, TOPIC_NAMES_MAX
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.coordinator_world import counted_lookups
from unit.coordinator.shares_world import SharesWorld


@pytest.fixture
def world() -> SharesWorld:
    made = SharesWorld()
    made.create_topic("a", 2)
    return made


def test_partitions_are_assigned_after_their_state_is_initialized(world: SharesWorld) -> None:
    joined = world.share_beat("m1", 0, "a")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m1", 2)
    assert world.owned(joined) == {}
    assert world.start_offsets() == {("a", 0): -1, ("a", 1): -1}
    assigned = world.share_beat("m1", 2)
    assert (assigned.member_epoch, world.owned(assigned)) == (3, {"a": {0, 1}})
    assert assigned.heartbeat_interval_ms == 5_000
    again = world.share_beat("m1", 3)
    assert (again.member_epoch, again.assignment) == (3, None)


def test_members_share_partitions(world: SharesWorld) -> None:
    world.share_beat("m1", 0, "a")
    world.share_beat("m1", 2)
    names = [f"m{number}" for number in range(2, 5)]
    epochs = {name: world.share_beat(name, 0, "a").member_epoch for name in names}
    owned = {name: world.owned(world.share_beat(name, epochs[name], "a")) for name in names}
    assert all(each["a"] for each in owned.values())
    first = world.share_beat("m1", 3)
    assert first.member_epoch == max(epochs.values())
    assert world.describe_shares().group_state == "Stable"


def test_added_partitions_are_read_from_their_beginning(world: SharesWorld) -> None:
    world.share_beat("m1", 0, "a")
    world.share_beat("m1", 2)
    world.add_partition("a", 2)
    bumped = world.share_beat("m1", 3)
    assert (bumped.member_epoch, bumped.assignment) == (4, None)
    assert world.start_offsets() == {("a", 0): -1, ("a", 1): -1, ("a", 2): 0}
    assert world.owned(world.share_beat("m1", 4)) == {"a": {0, 1, 2}}


def test_a_failed_initialization_is_repeated_by_the_next_heartbeat(world: SharesWorld) -> None:
    world.share_store.failing[1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.share_beat("m1", 0, "a")
    assert world.share_beat("m1", 2).assignment is None
    world.share_store.failing.clear()
    world.share_beat("m1", 2)
    assert world.owned(world.share_beat("m1", 2)) == {"a": {0, 1}}


def test_an_initialization_without_response_is_repeated_after_a_while(world: SharesWorld) -> None:
    world.share_store.is_held = True
    world.share_beat("m1", 0, "a")
    world.share_beat("m1", 2)
    assert len(world.share_store._held) == 1
    world.replicas.world.run_for(30_000)
    world.share_beat("m1", 2)
    assert len(world.share_store._held) == 2
    world.share_store.is_held = False
    world.share_store.release()
    assert world.owned(world.share_beat("m1", 2)) == {"a": {0, 1}}


def test_a_leaving_member_gives_its_partitions_to_the_others(world: SharesWorld) -> None:
    world.share_beat("m1", 0, "a")
    world.share_beat("m1", 2)
    world.share_beat("m2", 0, "a")
    left = world.share_beat("m1", -1)
    assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (0, -1, 0)
    epoch = world.describe_shares().group_epoch
    assert world.owned(world.share_beat("m2", 4)) == {"a": {0, 1}}
    assert epoch == 5


def test_an_expired_session_removes_the_member(world: SharesWorld) -> None:
    world.share_beat("m1", 0, "a")
    world.replicas.world.run_for(44_000)
    world.share_beat("m1", 2)
    world.replicas.world.run_for(44_000)
    assert [each.member_id for each in world.describe_shares().members] == ["m1"]
    world.replicas.world.run_for(2_000)
    described = world.describe_shares()
    assert (described.group_state, described.members) == ("Empty", [])
    assert world.share_beat("m1", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_configs_of_the_group_override_the_brokers(world: SharesWorld) -> None:
    world.overrides["g"] = {
        "share.heartbeat.interval.ms": "7000",
        "share.session.timeout.ms": "90000",
    }
    assert world.share_beat("m1", 0, "a").heartbeat_interval_ms == 7_000
    world.replicas.world.run_for(61_000)
    assert not world.describe_shares().members


def test_the_assignment_interval_delays_the_next_assignment() -> None:
    world = SharesWorld(group_share_assignment_interval_ms=1_000)
    world.create_topic("a", 1)
    world.share_beat("m1", 0, "a")
    waiting = world.share_beat("m1", 2)
    assert (waiting.member_epoch, waiting.assignment) == (2, None)
    assert world.describe_shares().group_epoch == 3
    world.replicas.world.run_for(1_000)
    assert world.owned(world.share_beat("m1", 2)) == {"a": {0}}


def test_a_full_group_refuses_new_members() -> None:
    world = SharesWorld(group_share_max_size=1)
    world.create_topic("a", 1)
    world.share_beat("m1", 0, "a")
    refused = world.share_beat("m2", 0, "a")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.share_beat("m1", 0, "a").error_code == 0


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (0, ErrorCode.NONE),
        (3, ErrorCode.NONE),
        (2, ErrorCode.NONE),
        (4, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_only_the_current_and_the_previous_epoch_are_accepted(
    world: SharesWorld, epoch: int, error: ErrorCode
) -> None:
    world.share_beat("m1", 0, "a")
    world.share_beat("m1", 2)
    assert world.share_beat("m1", epoch, "a").error_code == error


@pytest.mark.parametrize(
    ("member", "epoch", "topics", "group", "error"),
    [
        (" ", 0, ["a"], "g", ErrorCode.INVALID_REQUEST),
        ("m", 0, ["a"], "", ErrorCode.INVALID_REQUEST),
        ("m", 0, [], "g", ErrorCode.INVALID_REQUEST),
        ("m", -2, ["a"], "g", ErrorCode.INVALID_REQUEST),
        ("m", 1, ["a"], "g", ErrorCode.GROUP_ID_NOT_FOUND),
        ("m", -1, ["a"], "g", ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_invalid_heartbeats_are_refused(
    world: SharesWorld, member: str, epoch: int, topics: list[str], group: str, error: ErrorCode
) -> None:
    assert world.share_beat(member, epoch, *topics, group=group).error_code == error


def test_a_new_coordinator_continues_the_group(world: SharesWorld) -> None:
    world.share_beat("m1", 0, "a", rack="r1")
    world.share_beat("m1", 2)
    before = world.describe_shares()
    world.restart()
    assert world.describe_shares() == before
    assert before.members[0].rack_id == "r1"
    assert world.share_beat("m1", 3).error_code == 0
    world.replicas.world.run_for(46_000)
    assert not world.describe_shares().members


def test_a_group_id_has_one_type(world: SharesWorld) -> None:
    world.share_beat("m1", 0, "a", group="s")
    assert world.subscribe("c1", "a", group="s").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    world.subscribe("c1", "a", group="c")
    refused = world.share_beat("m1", 0, "a", group="c")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == "Group c is not a share group."
    assert world.commit(group="s", topic="a") == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.describe_shares("c").error_message == "Group c is not a share group."
    assert world.describe_shares("x").error_message == "Group x not found."


def test_a_subscription_has_a_limit(world: SharesWorld) -> None:
    names = [f"topic-{number}" for number in range(TOPIC_NAMES_MAX + 1)]
    refused = world.share_beat("m", 0, *names)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        f"A member may subscribe to at most {TOPIC_NAMES_MAX} topics by name.",
    )
    refused = world.share_beat("m", 0, "a" * (NAMES_LENGTH_MAX + 1))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert world.share_beat("m", 0, *names[1:]).error_code == ErrorCode.NONE


def test_a_heartbeat_without_news_looks_up_no_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SharesWorld()
    world.create_topic("a", 2)
    epoch = world.share_beat(
        "m", 0, "a", *(f"topic-{number}" for number in range(500))
    ).member_epoch
    for _ in range(3):
        epoch = world.share_beat("m", epoch).member_epoch
    lookups = counted_lookups(monkeypatch)
    assert world.share_beat("m", epoch).member_epoch == epoch
    assert len(lookups) < 10
    # New partitions are found nevertheless, although the epoch is the same until then.
    world.add_partition("a", 2)
    for _ in range(3):
        response = world.share_beat("m", epoch)
        epoch = response.member_epoch
    (member,) = world.describe_shares().members
    (assigned,) = member.assignment.topic_partitions
    assert assigned.partitions == [0, 1, 2]
