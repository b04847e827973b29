"""Heartbeats of streams groups: joining, tasks, statuses, leaving (KIP-1071)."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from unit.coordinator.streams_world import StreamsWorld, by_subtopology, topology


@pytest.fixture
def world() -> StreamsWorld:
    made = StreamsWorld()
    made.create_topic("orders", 2)
    return made


def codes(response) -> list[int]:
    return [each.status_code for each in response.status]


def test_the_first_member_gets_all_tasks(world: StreamsWorld) -> None:
    response = world.beat_streams("a", 0, topology("orders"))
    assert (response.error_code, response.member_epoch) == (0, 2)
    assert by_subtopology(response.active_tasks) == {"0": {0, 1}}
    assert (response.standby_tasks, response.warmup_tasks, response.status) == ([], [], [])
    assert world.state_of() == "Stable"


def test_a_second_member_waits_until_the_first_releases_its_task(world: StreamsWorld) -> None:
    first = topology("orders")
    world.beat_streams("a", 0, first)
    joined = world.beat_streams("b", 0, first)
    assert (joined.member_epoch, by_subtopology(joined.active_tasks)) == (3, {})
    revoked = world.beat_streams("a", 2, owned={"0": {0, 1}})
    assert revoked.member_epoch == 2
    kept = by_subtopology(revoked.active_tasks)
    assert len(kept["0"]) == 1
    assert by_subtopology(world.beat_streams("b", 3, owned={}).active_tasks) is None
    released = world.beat_streams("a", 2, owned=kept)
    assert released.member_epoch == 3
    granted = world.beat_streams("b", 3, owned={})
    assert by_subtopology(granted.active_tasks) == {"0": {0, 1} - kept["0"]}
    assert world.state_of() == "Stable"


def test_a_member_that_does_not_release_its_task_is_removed(world: StreamsWorld) -> None:
    first = topology("orders")
    world.beat_streams("a", 0, first)
    world.beat_streams("b", 0, first)
    world.beat_streams("a", 2, owned={"0": {0, 1}})
    world.replicas.world.run_for(1_100)
    assert world.beat_streams("a", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    granted = world.beat_streams("b", 3, owned={})
    assert by_subtopology(granted.active_tasks) == {"0": {0, 1}}


def test_missing_source_topics_are_reported_and_make_the_group_not_ready(
    world: StreamsWorld,
) -> None:
    response = world.beat_streams("a", 0, topology("trains"))
    assert codes(response) == [1]
    assert "trains" in response.status[0].status_detail
    assert (response.active_tasks, world.state_of()) == ([], "NotReady")


def test_a_new_source_topic_makes_the_group_ready(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("trains"))
    world.create_topic("trains", 1)
    response = world.beat_streams("a", 2)
    assert (codes(response), by_subtopology(response.active_tasks)) == ([], {"0": {0}})


def test_missing_internal_topics_are_created(world: StreamsWorld) -> None:
    response = world.beat_streams("a", 0, topology("orders", changelog="g-store-changelog"))
    assert codes(response) == [3]
    made = world.last.to_create["g-store-changelog"]
    assert (made.partitions, made.replication_factor) == (2, None)


def test_a_repartition_topic_gets_the_partitions_of_its_sources(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders", repartition="g-by-city-repartition"))
    assert world.last.to_create["g-by-city-repartition"].partitions == 2


def test_an_older_topology_is_stale_and_another_one_is_refused(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders", epoch=2))
    assert codes(world.beat_streams("b", 0, topology("orders", epoch=1))) == [0]
    refused = world.beat_streams("c", 0, topology("orders", epoch=3))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert (
        refused.error_message == "The group has another topology, and a group keeps its topology."
    )


def test_regular_expressions_are_refused(world: StreamsWorld) -> None:
    given = topology("orders")
    given.subtopologies[0].source_topic_regex = ["f.*"]
    refused = world.beat_streams("a", 0, given)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_the_first_assignment_waits_for_the_initial_delay() -> None:
    world = StreamsWorld(group_streams_initial_rebalance_delay_ms=3_000)
    world.create_topic("orders", 2)
    joined = world.beat_streams("a", 0, topology("orders"))
    assert (joined.member_epoch, joined.active_tasks, codes(joined)) == (1, [], [5])
    world.replicas.world.run_for(3_100)
    response = world.beat_streams("a", 1)
    assert (response.member_epoch, by_subtopology(response.active_tasks)) == (2, {"0": {0, 1}})


def test_assignments_wait_for_the_assignment_interval() -> None:
    world = StreamsWorld(group_streams_assignment_interval_ms=1_000)
    world.create_topic("orders", 2)
    world.beat_streams("a", 0, topology("orders"))
    delayed = world.beat_streams("b", 0, topology("orders"))
    assert (delayed.member_epoch, codes(delayed)) == (2, [5])
    world.replicas.world.run_for(1_100)
    assert world.beat_streams("b", 2).member_epoch == 3


def test_epochs_are_fenced(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"))
    for epoch in (1, 3):
        assert world.beat_streams("a", epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat_streams("b", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat_streams("a", 2, group="h").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_previous_epoch_is_accepted_with_assigned_tasks(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"))
    world.beat_streams("b", 0, topology("orders"))
    kept = by_subtopology(world.beat_streams("a", 2, owned={"0": {0, 1}}).active_tasks)
    world.beat_streams("a", 2, owned=kept)
    assert world.beat_streams("a", 2, owned=kept).error_code == 0
    assert world.beat_streams("a", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_an_expired_session_removes_the_member(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"))
    world.replicas.world.run_for(46_000)
    assert world.state_of() == "Empty"


def test_a_member_that_leaves_gives_up_its_tasks(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"))
    world.beat_streams("b", 0, topology("orders"))
    left = world.beat_streams("a", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    granted = world.beat_streams("b", 3, owned={})
    assert by_subtopology(granted.active_tasks) == {"0": {0, 1}}


def test_a_static_member_keeps_its_tasks_while_it_is_away(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"), instance="i", process="p")
    unreleased = world.beat_streams("b", 0, topology("orders"), instance="i", process="p")
    assert unreleased.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert world.beat_streams("a", -2, instance="i").member_epoch == -2
    back = world.beat_streams("b", 0, topology("orders"), instance="i", process="p")
    assert (back.member_epoch, by_subtopology(back.active_tasks)) == (2, {"0": {0, 1}})
    fenced = world.beat_streams("a", 2, instance="i")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_standby_task_goes_to_another_process() -> None:
    world = StreamsWorld(group_streams_num_standby_replicas=1)
    world.create_topic("orders", 1)
    world.create_topic("g-changelog", 1)
    given = topology("orders", changelog="g-changelog")
    world.beat_streams("a", 0, given)
    joined = world.beat_streams("b", 0, given)
    assert by_subtopology(joined.standby_tasks) == {"0": {0}}
    assert by_subtopology(joined.active_tasks) == {}


def test_a_shutdown_is_told_to_all_members(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"))
    world.beat_streams("b", 0, topology("orders"))
    world.beat_streams("a", 2, shutdown=True)
    assert codes(world.beat_streams("b", 3)) == [4]


def test_members_learn_the_partitions_behind_endpoints(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"), endpoint="host-a")
    response = world.beat_streams("a", 2, endpoint_epoch=-1)
    (entry,) = response.partitions_by_user_endpoint
    assert entry.user_endpoint.host == "host-a"
    (partitions,) = entry.active_partitions
    assert (partitions.topic, partitions.partitions) == ("orders", [0, 1])
    known = world.beat_streams("a", 2, endpoint_epoch=response.endpoint_information_epoch)
    assert known.partitions_by_user_endpoint is None


def test_missing_client_tags_are_reported_to_clients_that_know_the_status() -> None:
    world = StreamsWorld()
    world.create_topic("orders", 2)
    world.overrides["g"] = {"streams.rack.aware.assignment.tags": "zone,rack"}
    response = world.beat_streams("a", 0, topology("orders"), tags={"zone": "z"})
    assert codes(response) == [6]
    assert "client tags rack, which" in response.status[0].status_detail
    assert codes(world.beat_streams("a", response.member_epoch, version=0)) == []


def test_a_full_group_refuses_new_members() -> None:
    world = StreamsWorld(group_streams_max_size=1)
    world.create_topic("orders", 2)
    world.beat_streams("a", 0, topology("orders"))
    refused = world.beat_streams("b", 0, topology("orders"))
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.beat_streams("a", 0, topology("orders")).error_code == 0


def test_unknown_tasks_are_refused(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"))
    refused = world.beat_streams("a", 2, owned={"0": {7}})
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "has task 7" in refused.error_message


def test_a_changed_number_of_standby_tasks_raises_the_group_epoch(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"))
    world.overrides["g"] = {"streams.num.standby.replicas": "1"}
    assert world.beat_streams("a", 2).member_epoch == 3


def test_a_new_coordinator_continues_with_the_tasks_of_the_old_one(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"), endpoint="host-a", tags={"zone": "z"})
    before = world.describe_streams()
    world.coordinator = world.new_coordinator()
    world.load(1)
    assert world.describe_streams() == before
    again = world.beat_streams("a", 2, owned={"0": {0, 1}})
    assert (again.error_code, again.member_epoch, again.active_tasks) == (0, 2, None)


def test_the_tasks_of_a_large_group_come_with_a_later_heartbeat() -> None:
    world = StreamsWorld()
    world.create_topic("orders", 600)
    joined = world.beat_streams("a", 0, topology("orders"))
    assert (joined.active_tasks, joined.member_epoch) == ([], 1)
    world.replicas.world.run_for(100)
    response = world.beat_streams("a", 1)
    assert by_subtopology(response.active_tasks) == {"0": set(range(600))}
    assert (response.member_epoch, world.state_of()) == (2, "Stable")


def test_a_large_topology_is_configured_in_slices_before_the_heartbeat() -> None:
    world = StreamsWorld()
    names = [f"topic-{index}" for index in range(400)]
    joined = world.beat_streams("a", 0, topology(*names))
    assert (codes(joined), world.has_sliced) == ([1], True)
    assert codes(world.beat_streams("a", joined.member_epoch)) == [1]
    assert not world.has_sliced, "nothing has changed"
    world.create_topic("topic-0", 1)
    changed = world.beat_streams("a", joined.member_epoch)
    assert (codes(changed), world.has_sliced) == ([1], True)
    assert codes(world.beat_streams("a", changed.member_epoch)) == [1]
    assert not world.has_sliced, "nothing has changed"
    world.restart()
    assert codes(world.beat_streams("a", changed.member_epoch)) == [1]
    assert world.has_sliced


def test_a_small_topology_is_configured_at_once(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"))
    assert not world.has_sliced


def test_a_new_group_is_described_with_the_topology_of_its_member(world: StreamsWorld) -> None:
    """The next heartbeat fills in the configured partitions, as in Kafka."""
    world.create_topic("log", 2)
    world.beat_streams("a", 0, topology("orders", changelog="log"))
    (changelog,) = world.describe_streams().topology.subtopologies[0].state_changelog_topics
    assert changelog.partitions == 0
    world.beat_streams("a", 2)
    (changelog,) = world.describe_streams().topology.subtopologies[0].state_changelog_topics
    assert changelog.partitions == 2


def test_task_offsets_are_described_until_the_member_leaves(world: StreamsWorld) -> None:
    world.beat_streams("a", 0, topology("orders"))
    world.beat_streams("a", 2, offsets={1: 40}, end_offsets={1: 50})
    (member,) = world.describe_streams().members
    assert [(each.partition, each.offset) for each in member.task_offsets] == [(1, 40)]
    assert [(each.partition, each.offset) for each in member.task_end_offsets] == [(1, 50)]
    world.beat_streams("a", -1)
    world.beat_streams("a", 0, topology("orders"))
    (member,) = world.describe_streams().members
    assert member.task_offsets == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"owned": {"0": {0}}},
            "The heartbeat that joins must report an empty list of active tasks.",
        ),
        ({"rebalance_ms": -1}, "The heartbeat that joins needs a rebalance timeout."),
        ({"instance": " "}, "The instance id is blank."),
        (
            {"tags": {f"tag-{number}": "v" for number in range(101)}},
            "A member may have at most 100 client tags.",
        ),
    ],
)
def test_wrong_fields_of_a_join_are_refused(
    world: StreamsWorld, fields: dict[str, object], message: str
) -> None:
    refused = world.beat_streams("a", 0, topology("orders"), **fields)
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_wrong_epochs_and_topologies_are_refused(world: StreamsWorld) -> None:
    missing = world.beat_streams("a", 0)
    assert missing.error_message == "The heartbeat that joins needs a topology."
    early = world.beat_streams("a", 1, topology("orders"))
    assert early.error_message == "Only the heartbeat that joins may have a topology."
    assert "below -2" in world.beat_streams("a", -3).error_message
    assert (
        world.beat_streams("a", -2).error_message
        == "Epoch -2 is only for static members, but the request has no instance id."
    )
