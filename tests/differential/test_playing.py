"""A case with differences is repeated, and only repeated differences are reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from differential.playing import play_case


class FakePair:
    def __init__(self) -> None:
        self.differed_once: list[str] = []


class FakeScene:
    """A scene with given differences."""

    version = 3

    def __init__(self, pair: FakePair, name: str, found: list[str]) -> None:
        self.pair = pair
        self.name = name
        self.found = found

    def unexpected(self, differs: Any, not_met: set[str]) -> Iterator[str]:
        yield from self.found


@pytest.mark.parametrize(
    ("plays", "names", "reported", "once"),
    [
        ([[]], ["a"], [], []),
        ([["x"], []], ["a", "a-again"], [], ["a v3 x"]),
        ([["x"], ["x"]], ["a", "a-again"], ["x"], []),
        ([["x", "y"], ["y", "z"]], ["a", "a-again"], ["y", "z"], []),
    ],
    ids=["equal", "differs once", "differs twice", "differs otherwise"],
)
def test_a_difference_is_reported_when_it_is_repeated(
    plays: list[list[str]], names: list[str], reported: list[str], once: list[str]
) -> None:
    pair, played = FakePair(), []
    scenes = iter(plays)

    def new_scene(name: str) -> Any:
        return FakeScene(pair, name, next(scenes))

    last, found = play_case(new_scene, "a", lambda scene: played.append(scene.name), {}, set())
    assert (played, found, pair.differed_once) == (names, reported, once)
    assert last.name == names[-1]
