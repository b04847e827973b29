"""Target assignments of large share groups are computed in slices."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group import targets
from barnabas.coordinator.group.share import share_membership
from barnabas.coordinator.group.share.share_group import ShareGroup
from barnabas.coordinator.group.targets import STEP
from barnabas.coordinator.group.topics import NOTHING
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.shares_world import SharesWorld

MEMBERS, PARTITIONS = 6, 80
# Longer than any computation of these tests.
DONE_MS = 1_000


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SharesWorld:
    """Return a world in which each assignment takes many slices: each slice is one step."""
    monkeypatch.setattr(targets, "SHORT_SLICE_MS", -1)
    monkeypatch.setattr(share_membership, "AT_ONCE_MAX", 0)
    world = SharesWorld()
    world.create_topic("a", PARTITIONS)
    return world


def fill(world: SharesWorld) -> None:
    for number in range(MEMBERS):
        assert world.share_beat(f"m{number}", 0, "a").error_code == ErrorCode.NONE


def group_of(world: SharesWorld) -> ShareGroup:
    found = world.shard.share_groups.groups.find("g")
    assert found is not None
    return found


def beat_all(world: SharesWorld) -> None:
    """Let all members send heartbeats until they have their targets."""
    for _ in range(4):
        world.run_for(DONE_MS)
        for member in list(group_of(world).members.values()):
            world.share_beat(member.member_id, member.member_epoch)


def assigned(world: SharesWorld) -> dict[str, dict[bytes, frozenset[int]]]:
    members = group_of(world).members.values()
    return {member.member_id: dict(member.assigned) for member in members}


def sizes_of(found: dict[str, dict[bytes, frozenset[int]]]) -> list[int]:
    """Return the numbers of partitions of the members, in ascending order."""
    return sorted(sum(map(len, own.values())) for own in found.values())


def test_a_heartbeat_gets_the_current_target_until_the_new_one_is_computed(
    world: SharesWorld,
) -> None:
    fill(world)
    group = group_of(world)
    assert group.assignment_epoch < group.group_epoch
    assert all(group.target_of(each) == NOTHING for each in group.members)
    beat_all(world)
    partitions = [index for own in assigned(world).values() for index in own[world.id_of("a")]]
    assert sorted(partitions) == list(range(PARTITIONS))


def test_the_result_is_that_of_a_small_group(
    world: SharesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world)
    beat_all(world)
    sliced = assigned(world)
    monkeypatch.setattr(share_membership, "AT_ONCE_MAX", 1 << 30)
    other = SharesWorld()
    other.create_topic("a", PARTITIONS)
    fill(other)
    beat_all(other)
    # The order of the computations differs, and so do the members that keep partitions.
    assert sizes_of(sliced) == sizes_of(assigned(other))


def test_a_computation_takes_a_turn_for_each_step(world: SharesWorld) -> None:
    fill(world)
    beat_all(world)
    world.share_beat("another", 0, "a")
    group, turns = group_of(world), 0
    while group.assignment_epoch < group.group_epoch:
        world.run_for(1)
        turns += 1
    # A step for each member, and for each part of the partitions.
    assert turns > MEMBERS + PARTITIONS // STEP


def test_members_that_left_meanwhile_get_no_target(world: SharesWorld) -> None:
    fill(world)
    world.run_for(3)
    world.share_beat("m3", -1)
    world.run_for(DONE_MS)
    assert "m3" not in group_of(world).targets
    beat_all(world)
    assert sum(len(own[world.id_of("a")]) for own in assigned(world).values()) == PARTITIONS


def test_the_computed_state_equals_the_state_that_is_loaded_from_the_log(
    world: SharesWorld,
) -> None:
    fill(world)
    beat_all(world)
    before = group_of(world)
    world.fail_over()
    after = group_of(world)
    assert (after.targets, after.assignment_epoch) == (before.targets, before.assignment_epoch)
    assert after.members == before.members


def test_a_computation_ends_with_the_leadership(world: SharesWorld) -> None:
    fill(world)
    world.run_for(3)
    world.fail_over()
    world.run_for(DONE_MS)
    group = group_of(world)
    assert group.assignment_epoch < group.group_epoch
    beat_all(world)
    assert group.assignment_epoch == group.group_epoch
