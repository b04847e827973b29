"""Assignments of groups over time."""

from __future__ import annotations

from barnabas.console.plans.assignments import CHANGES_MAX, Assignments
from unit.console.samples import owned


def test_only_changes_are_kept_with_the_time_of_their_first_sample() -> None:
    found = Assignments()
    for at, owners in ((1, ("a", "a")), (2, ("a", "a")), (3, ("a", "b")), (4, ("a", ""))):
        found.add("g", at, owned(*owners))
    assert [(each.since, list(each.owners.values())) for each in found.of("g")] == [
        (1, ["a", "a"]),
        (3, ["a", "b"]),
        (4, ["a"]),
    ]


def test_the_oldest_changes_and_groups_that_are_gone_are_forgotten() -> None:
    found = Assignments()
    for at in range(CHANGES_MAX + 3):
        found.add("g", at, owned(str(at)))
    assert len(found.of("g")) == CHANGES_MAX
    assert found.of("g")[0].since == 3
    found.keep_only(["other"])
    assert found.of("g") == []


def test_groups_that_never_had_members_and_huge_ones_are_not_kept() -> None:
    found = Assignments()
    found.add("idle", 1, owned("", ""))
    found.add("huge", 1, owned(*("m" for _ in range(1001))))
    assert found.of("idle") == found.of("huge") == []
