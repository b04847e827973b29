"""Heartbeats of consumer groups: each transition of a member, errors, timeouts and loading."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.group_base import NAMES_LENGTH_MAX, TOPIC_NAMES_MAX
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.consumers_world import REBALANCE_MS, ConsumersWorld
from unit.coordinator.coordinator_world import counted_lookups


@pytest.fixture
def world() -> ConsumersWorld:
    made = ConsumersWorld()
    made.create_topic("a", 4)
    return made


def test_the_first_member_gets_all_partitions(world: ConsumersWorld) -> None:
    answer = world.subscribe("m1", "a")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m1", 2)
    assert world.owned(answer) == {"a": {0, 1, 2, 3}}
    assert answer.heartbeat_interval_ms == 5_000
    assert world.state() == "Stable"


def test_a_partition_moves_after_its_owner_has_revoked_it(world: ConsumersWorld) -> None:
    world.subscribe("m1", "a")
    joined = world.subscribe("m2", "a")
    assert (joined.member_epoch, world.owned(joined)) == (3, {})
    assert world.state() == "Reconciling"
    # UNREVOKED_PARTITIONS: the owner stays in its epoch until it reports its owned partitions.
    told = world.beat("m1", 2)
    assert (told.member_epoch, world.owned(told)) == (2, {"a": {0, 1}})
    assert world.beat("m1", 2).assignment is None
    assert world.owned(world.beat("m2", 3)) is None
    confirmed = world.beat("m1", 2, {"a": {0, 1}})
    assert (confirmed.member_epoch, confirmed.assignment) == (3, None)
    assert world.owned(world.beat("m2", 3)) == {"a": {2, 3}}
    assert world.state() == "Stable"


def test_a_member_that_leaves_releases_its_partitions(world: ConsumersWorld) -> None:
    world.subscribe("m1", "a")
    world.subscribe("m2", "a")
    left = world.beat("m1", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert world.owned(world.beat("m2", 3)) == {"a": {0, 1, 2, 3}}
    assert world.beat("m1", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    world.beat("m2", -1)
    assert world.state() == "Empty"


def test_a_member_with_another_epoch_is_fenced(world: ConsumersWorld) -> None:
    world.subscribe("m1", "a")
    assert world.beat("m1", 9).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("m1", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("m1", 2).error_code == ErrorCode.NONE


def test_a_lost_response_does_not_fence_a_member(world: ConsumersWorld) -> None:
    world.subscribe("m1", "a")
    world.add_partition("a", 4)
    assert world.beat("m1", 2).member_epoch == 3
    repeated = world.beat("m1", 2, {"a": {0, 1, 2, 3}})
    assert (repeated.error_code, repeated.member_epoch) == (0, 3)
    assert world.beat("m1", 2, {"a": {0, 7}}).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_an_expired_session_removes_the_member(world: ConsumersWorld) -> None:
    world.subscribe("m1", "a")
    world.replicas.world.run_for(44_000)
    assert world.state() == "Stable"
    world.replicas.world.run_for(2_000)
    assert world.state() == "Empty"


def test_a_member_that_does_not_revoke_in_time_is_removed(world: ConsumersWorld) -> None:
    world.subscribe("m1", "a")
    world.subscribe("m2", "a")
    world.beat("m1", 2)
    for _ in range(3):
        world.replicas.world.run_for(REBALANCE_MS // 2)
        world.beat("m2", 3)
    assert world.beat("m1", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    world.beat("m2", 3)
    assert [each.member_id for each in world.describe_consumers().members] == ["m2"]


def test_a_static_member_keeps_its_partitions_while_it_is_away(world: ConsumersWorld) -> None:
    world.subscribe("m1", "a", instance_id="i")
    world.subscribe("m2", "a")
    world.beat("m1", 2, {"a": {0, 1}}, instance_id="i")
    taken = world.subscribe("m3", "a", instance_id="i")
    assert taken.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert world.beat("m1", -2, instance_id="i").member_epoch == -2
    back = world.subscribe("m3", "a", instance_id="i")
    assert (back.error_code, world.owned(back)) == (0, {"a": {0, 1}})
    assert world.beat("m1", 3, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.describe_consumers().group_epoch == 3


def test_new_partitions_and_deleted_topics_change_the_assignment(world: ConsumersWorld) -> None:
    world.create_topic("b", 1)
    world.subscribe("m1", "a", "b")
    world.add_partition("a", 4)
    assert world.owned(world.beat("m1", 2)) == {"a": {0, 1, 2, 3, 4}, "b": {0}}
    world.delete_topic("b")
    assert world.owned(world.beat("m1", 3)) == {"a": {0, 1, 2, 3, 4}}


def test_a_regular_expression_is_resolved_after_the_response(world: ConsumersWorld) -> None:
    world.create_topic("ab", 1)
    world.create_topic("secret-a", 1)
    world.hidden.add("secret-a")
    joined = world.subscribe("m1", subscribed_topic_regex="(secret-)?a.?")
    assert (joined.member_epoch, world.owned(joined)) == (1, {})
    world.replicas.world.run_for(10)
    assert world.owned(world.beat("m1", 1)) == {"a": {0, 1, 2, 3}, "ab": {0}}
    world.create_topic("ac", 2)
    world.replicas.world.run_for(11_000)
    world.beat("m1", 2)
    world.replicas.world.run_for(10)
    assert world.owned(world.beat("m1", 2)) == {"a": {0, 1, 2, 3}, "ab": {0}, "ac": {0, 1}}


def test_an_invalid_regular_expression_is_refused(world: ConsumersWorld) -> None:
    refused = world.subscribe("m1", subscribed_topic_regex="[")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.error_message.startswith("SubscribedTopicRegex `[` is not a valid")
    assert world.describe_consumers().error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member": ""}, ErrorCode.INVALID_REQUEST),
        ({"group": " "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": {"a": {0}}}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"epoch": 5}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_an_invalid_request_is_refused(
    world: ConsumersWorld, fields: dict, error: ErrorCode
) -> None:
    given = {
        "member": "m",
        "epoch": 0,
        "owned": {},
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["a"],
        **fields,
    }
    assert world.beat(**given).error_code == error


def test_a_full_group_refuses_members() -> None:
    world = ConsumersWorld(group_consumer_max_size=1)
    world.create_topic("a", 1)
    world.subscribe("m1", "a")
    assert world.subscribe("m2", "a").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.subscribe("m1", "a").error_code == ErrorCode.NONE


def test_assignments_are_batched_within_the_interval() -> None:
    world = ConsumersWorld(group_consumer_assignment_interval_ms=1_000)
    world.create_topic("a", 2)
    world.subscribe("m1", "a")
    assert world.subscribe("m2", "a").member_epoch == 2
    assert world.state() == "Assigning"
    world.replicas.world.run_for(1_001)
    assert world.beat("m2", 2).member_epoch == 3


def test_configs_of_the_group_override_those_of_the_broker(world: ConsumersWorld) -> None:
    world.overrides["g"] = {
        "consumer.heartbeat.interval.ms": "7000",
        "consumer.session.timeout.ms": "90000",
    }
    assert world.subscribe("m1", "a").heartbeat_interval_ms == 7_000
    # The broker's maximum is 60 s.
    world.replicas.world.run_for(59_000)
    assert world.state() == "Stable"
    world.replicas.world.run_for(2_000)
    assert world.state() == "Empty"


def test_another_broker_loads_the_group_from_its_records(world: ConsumersWorld) -> None:
    world.subscribe("m1", "a", instance_id="i", server_assignor="range", rack_id="r")
    world.subscribe("m2", subscribed_topic_regex="a")
    world.replicas.world.run_for(10)
    world.beat("m1", 2, {"a": {0, 1, 2, 3}}, instance_id="i")
    before = world.describe_consumers()
    world.restart()
    assert world.describe_consumers() == before
    assert world.beat("m1", before.members[0].member_epoch, instance_id="i").error_code == 0
    world.replicas.world.run_for(61_000)
    assert world.state() == "Empty"
    assert world.coordinator.memory.held_bytes == 0


def test_an_empty_group_changes_its_protocol(world: ConsumersWorld) -> None:
    world.join(version=3)
    world.replicas.world.run_for(60_000)
    assert world.describe().group_state == "Empty"
    assert world.subscribe("m1", "a").error_code == 0
    world.beat("m1", -1)
    world.join(version=3)
    assert world.describe_consumers().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    world.restart()
    assert world.describe_consumers().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_members_commit_with_their_epoch(world: ConsumersWorld) -> None:
    world.create_topic("flights", 2)
    epoch = world.subscribe("m1", "flights").member_epoch
    assert world.commit(member="m1", generation=epoch, version=9) == 0
    assert world.commit(member="m1", generation=epoch) == ErrorCode.UNSUPPORTED_VERSION
    assert world.commit(member="m1", generation=9, version=9) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(member="m2", generation=2, version=9) == ErrorCode.UNKNOWN_MEMBER_ID
    world.add_partition("flights", 2)
    assert world.beat("m1", epoch).member_epoch == epoch + 1
    # The member has owned the partition since the older epoch (KIP-1251).
    assert world.commit(member="m1", generation=epoch, version=9) == 0
    late = world.commit(member="m1", generation=epoch, version=9, partition=2)
    assert late == ErrorCode.STALE_MEMBER_EPOCH


def test_a_subscription_by_name_and_owned_partitions_have_limits() -> None:
    """Without them, a heartbeat of some megabytes would hold the event loop."""
    world = ConsumersWorld()
    world.create_topic("a", 1)
    names = [f"topic-{number}" for number in range(TOPIC_NAMES_MAX)]
    refused = world.subscribe("m", "a", *names)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        f"A member may subscribe to at most {TOPIC_NAMES_MAX} topics by name.",
    )
    refused = world.subscribe("m", "a" * (NAMES_LENGTH_MAX // 2), "b" * (NAMES_LENGTH_MAX // 2 + 1))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        f"Topic names of a member may have {NAMES_LENGTH_MAX} characters in total.",
    )
    joined = world.subscribe("m", "a", *names[1:])
    assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 1)
    owned = {f"{number:016}": {0} for number in range(TOPIC_NAMES_MAX + 1)}
    refused = world.beat("m", 1, owned)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        f"A member may own partitions of at most {TOPIC_NAMES_MAX} topics.",
    )


def test_a_heartbeat_looks_up_a_subscribed_topic_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ConsumersWorld()
    world.create_topic("a", 1)
    lookups = counted_lookups(monkeypatch)
    names = [f"topic-{number}" for number in range(2_000)]
    joined = world.subscribe("m", "a", *names)
    assert 2_000 <= len(lookups) < 2_020
    world.run_for(1_000)
    reached = world.beat("m", joined.member_epoch)
    assert world.owned(reached) == {"a": {0}}
    lookups.clear()
    world.beat("m", reached.member_epoch)
    assert len(lookups) < 10
