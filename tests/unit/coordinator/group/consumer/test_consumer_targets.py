"""Target assignments that are computed in slices, while the group changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.group import targets as group_targets
from barnabas.coordinator.group.consumer import consumer_targets
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.state_partition import StatePartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import Member
from unit.coordinator.consumers_world import ConsumersWorld, Partitions
from unit.coordinator.instructions import Instructions

MEMBERS = 40
PARTITIONS = 80
# Longer than any computation of these tests.
DONE_MS = 1_000


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> ConsumersWorld:
    """Return a group whose assignment takes many slices: each slice is one step."""
    monkeypatch.setattr(group_targets, "SHORT_SLICE_MS", -1)
    monkeypatch.setattr(consumer_targets, "AT_ONCE_MAX", 0)
    world = ConsumersWorld()
    world.create_topic("a", PARTITIONS)
    return world


def fill(world: ConsumersWorld, count: int = MEMBERS) -> None:
    for number in range(count):
        assert world.subscribe(f"m{number}", "a").error_code == ErrorCode.NONE


def targets(world: ConsumersWorld) -> dict[str, Partitions]:
    return {each.member_id: target_of(each) for each in world.describe_consumers().members}


def target_of(member: Member) -> Partitions:
    listed = member.target_assignment.topic_partitions
    return {each.topic_name: set(each.partitions) for each in listed}


def is_complete(found: dict[str, Partitions]) -> bool:
    listed = [index for target in found.values() for index in target.get("a", ())]
    return sorted(listed) == list(range(PARTITIONS))


def test_a_heartbeat_gets_the_current_target_until_the_new_one_is_computed(
    world: ConsumersWorld,
) -> None:
    joined = world.subscribe("m", "a")
    assert world.owned(joined) == {}
    assert world.state() == "Assigning"
    world.run_for(DONE_MS)
    response = world.beat("m", joined.member_epoch)
    assert response.member_epoch == 2
    assert world.owned(response) == {"a": set(range(PARTITIONS))}


def test_a_computation_takes_several_turns_of_the_loop(world: ConsumersWorld) -> None:
    fill(world)
    world.run_for(5)
    assert world.state() == "Assigning"
    world.run_for(DONE_MS)
    assert is_complete(targets(world))


def test_members_that_left_meanwhile_get_no_target(world: ConsumersWorld) -> None:
    fill(world)
    world.run_for(5)
    world.beat("m3", -1)
    world.run_for(DONE_MS)
    described = world.describe_consumers()
    assert described.assignment_epoch == described.group_epoch - 1
    assert "m3" not in targets(world)
    # The next heartbeat starts the computation for the newer epoch.
    assert world.beat("m4", 1).error_code == ErrorCode.NONE
    world.run_for(DONE_MS)
    assert is_complete(targets(world))
    assert world.describe_consumers().assignment_epoch == described.group_epoch


def test_members_that_joined_meanwhile_get_their_target_next(world: ConsumersWorld) -> None:
    fill(world)
    world.run_for(5)
    world.subscribe("late", "a")
    world.run_for(DONE_MS)
    assert targets(world)["late"] == {}
    world.beat("late", 1)
    world.run_for(DONE_MS)
    assert targets(world)["late"]
    assert is_complete(targets(world))


def test_a_static_member_that_was_replaced_meanwhile_gives_its_target_to_its_successor(
    world: ConsumersWorld,
) -> None:
    world.subscribe("m", "a")
    joined = world.subscribe("old", "a", instance_id="i")
    world.run_for(DONE_MS)
    world.beat("m", 1)
    world.run_for(DONE_MS)
    before = targets(world)["old"]
    world.subscribe("another", "a")
    world.run_for(1)
    assert world.state() == "Assigning"
    assert world.beat("old", -2, instance_id="i").error_code == ErrorCode.NONE, joined
    assert world.subscribe("new", "a", instance_id="i").error_code == ErrorCode.NONE
    world.run_for(DONE_MS)
    found = targets(world)
    assert "old" not in found
    assert 0 < len(found["new"]["a"]) < len(before["a"])
    assert is_complete(found)


def test_a_member_that_left_and_joined_again_meanwhile_keeps_its_target(
    world: ConsumersWorld,
) -> None:
    fill(world, 4)
    world.run_for(DONE_MS)
    world.beat("m0", 1)
    world.run_for(DONE_MS)
    world.create_topic("b", 1)
    world.subscribe("m9", "b")
    world.run_for(1)
    world.beat("m2", -1)
    world.subscribe("m2", "a")
    world.run_for(DONE_MS)
    assert targets(world)["m2"]["a"]


def test_the_computed_state_equals_the_state_that_is_loaded_from_the_log(
    world: ConsumersWorld,
) -> None:
    fill(world)
    world.run_for(DONE_MS)
    before = world.describe_consumers()
    world.restart()
    assert world.describe_consumers() == before


def test_a_computation_ends_with_the_leadership(world: ConsumersWorld) -> None:
    fill(world)
    world.run_for(5)
    world.restart()
    world.run_for(DONE_MS)
    assert world.state() == "Assigning"
    world.beat("m0", 1)
    world.run_for(DONE_MS)
    assert is_complete(targets(world))


def test_a_group_that_became_empty_meanwhile_keeps_the_epoch_of_its_last_change(
    world: ConsumersWorld,
) -> None:
    fill(world, 2)
    world.run_for(1)
    for name in ("m0", "m1"):
        world.beat(name, -1)
    world.run_for(DONE_MS)
    described = world.describe_consumers()
    assert described.group_state == "Empty"
    assert described.assignment_epoch == described.group_epoch == 5


def test_a_group_that_was_deleted_and_created_again_meanwhile_gets_no_old_target(
    world: ConsumersWorld,
) -> None:
    fill(world, 2)
    world.run_for(1)
    for name in ("m0", "m1"):
        world.beat(name, -1)
    assert world.delete("g") == [ErrorCode.NONE]
    world.subscribe("m1", "a")
    world.run_for(DONE_MS)
    assert world.describe_consumers().assignment_epoch == 1
    world.beat("m1", 1)
    world.run_for(DONE_MS)
    assert is_complete(targets(world))


@pytest.mark.parametrize("members", [1, 120])
def test_only_large_groups_are_computed_in_slices(members: int) -> None:
    world = ConsumersWorld()
    world.create_topic("a", PARTITIONS)
    fill(world, members)
    assert world.state() == ("Stable" if members == 1 else "Assigning")


# Interpreter instructions of the whole assignment of 1,000 members and 1,000 partitions, and of
# its longest slice. They take about 12 ns each, so the limits are far below 50 ms and 5 ms.
INSTRUCTIONS_MAX = 2_000_000
SLICE_INSTRUCTIONS_MAX = 300_000


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_assignment_of_a_thousand_members_holds_the_loop_for_short_slices(
    assignor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_targets, "SHORT_SLICE_MS", -1)
    real, instructions = StatePartition._on_timer, Instructions()

    def on_timer(
        partition: StatePartition[Any], operation: Callable[[], CoordinatorResult[None]]
    ) -> None:
        instructions.count(lambda: real(partition, operation))

    monkeypatch.setattr(StatePartition, "_on_timer", on_timer)
    world = ConsumersWorld()
    world.create_topic("a", 1_000)
    for number in range(1_000):
        world.subscribe(f"m{number}", "a", server_assignor=assignor)
    world.run_for(DONE_MS)
    found = targets(world)
    assert sorted(index for each in found.values() for index in each["a"]) == [*range(1_000)]
    assert len(instructions.counts) > 50
    assert sum(instructions.counts) < INSTRUCTIONS_MAX
    assert max(instructions.counts) < SLICE_INSTRUCTIONS_MAX
