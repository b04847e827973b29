"""The names that a link's pattern matches, in slices."""

from __future__ import annotations

from typing import Any

from barnabas.client.admin.sender import Pause
from barnabas.server.links.name_filter import NameFilter
from barnabas.settings.pattern import Pattern


def select(names: NameFilter, pattern: str, given: list[str]) -> tuple[list[str], int]:
    """Return the names that match, and the number of pauses."""
    plan: Any = names.select(Pattern(pattern), given)
    pauses = 0
    while True:
        try:
            step = next(plan)
        except StopIteration as end:
            return end.value, pauses
        assert isinstance(step, Pause)
        pauses += 1


def test_names_that_match_keep_their_order() -> None:
    assert select(NameFilter(), "a.*", ["ab", "b", "aa"]) == (["ab", "aa"], 0)


def test_only_new_names_are_matched_with_pauses() -> None:
    names = NameFilter()
    many = [f"a{number}" for number in range(500)]

    assert select(names, "a.*", many) == (many, 10)
    assert select(names, "a.*", [*many, "b", "ab"]) == ([*many, "ab"], 0)


def test_another_pattern_decides_anew() -> None:
    names = NameFilter()
    select(names, "a.*", ["aa", "bb"])

    assert select(names, "b.*", ["aa", "bb"]) == (["bb"], 0)
