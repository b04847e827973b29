"""Metrics of the group coordinator."""

from __future__ import annotations

from barnabas.coordinator.group.group_coordinator import group_families
from barnabas.metrics import names
from unit.coordinator.members_world import MembersWorld


def counted(world: MembersWorld) -> dict[str, float]:
    return {
        family.name: sum(value for _, value in family.samples)
        for family in group_families(world.coordinator)
    }


def test_groups_and_offsets_are_counted() -> None:
    world = MembersWorld()
    world.stable(2)
    world.begin(group="h")
    world.join(version=3, group="i")
    world.commit(5, group="j")
    found = counted(world)
    assert found[names.GROUPS] == 4
    assert found[names.GROUPS_STABLE] == found[names.GROUPS_COMPLETING_REBALANCE] == 1
    assert found[names.GROUPS_PREPARING_REBALANCE] == found[names.GROUPS_EMPTY] == 1
    assert found[names.GROUP_OFFSETS] == found[names.OFFSET_COMMITS] == 1
    assert found[names.GROUP_REBALANCES] == 1
    assert found[names.GROUP_STATE_PARTITIONS] == 1


def test_removed_offsets_are_counted_by_reason() -> None:
    world = MembersWorld(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000)
    for group in ("a", "b", "c"):
        world.commit(5, group=group)
    world.delete("a")
    world.delete_offsets(0, group="b")
    world.run_for(80_000)
    found = counted(world)
    assert (found[names.OFFSET_DELETIONS], found[names.OFFSET_EXPIRATIONS]) == (2, 1)
    assert (found[names.GROUP_OFFSETS], found[names.GROUPS]) == (0, 0)
