"""Regular expressions over many topics: matched in slices of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.group import targets as group_targets
from barnabas.coordinator.group.consumer import (
    consumer_shard,
    regexes,
)
from barnabas.coordinator.group.consumer.consumer_shard import Matched, MatchedTopics
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.state_partition import StatePartition
from unit.coordinator.consumers_world import ConsumersWorld
from unit.coordinator.coordinator_world import Topics

TOPICS = 10_000


@pytest.mark.parametrize("regex", ["topic-.*", "(a|aa)+$|topic-(.*)(.*)(.*)[0-8]", "nothing"])
def test_an_expression_is_matched_with_one_topic_after_the_other(
    regex: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_targets, "SHORT_SLICE_MS", -1)
    names = [f"topic-{number}" for number in range(TOPICS)]
    monkeypatch.setattr(Topics, "topic_names", lambda _: iter(names))
    real, slices = StatePartition._on_timer, 0
    matched: list[str] = []

    def on_timer(
        partition: StatePartition[Any], operation: Callable[[], CoordinatorResult[None]]
    ) -> None:
        nonlocal slices
        slices += 1
        before = len(matched)
        real(partition, operation)
        assert len(matched) <= before + 1

    compile_regex = regexes.compile_regex

    def counting(pattern: str) -> Callable[[str], bool]:
        is_match = compile_regex(pattern)

        def matches(name: str) -> bool:
            matched.append(name)
            return is_match(name)

        return matches

    monkeypatch.setattr(regexes, "compile_regex", counting)
    monkeypatch.setattr(StatePartition, "_on_timer", on_timer)
    world = ConsumersWorld()
    joined = world.subscribe("m", subscribed_topic_regex=regex)
    assert joined.error_code == 0
    assert not matched
    # The wheel runs one slice in a millisecond: for each topic a match and a check of access.
    world.run_for(2 * TOPICS + 100)
    assert matched == names
    assert slices > TOPICS
    (shard,) = world.coordinator.runtime.active_shards()
    group = shard.consumer_groups.groups.find("g")
    assert group is not None
    expected = {"topic-.*": TOPICS, "nothing": 0}.get(regex, TOPICS * 9 // 10)
    assert len(group.resolved[regex].topics) == expected


class Matching:
    """Counts the matches of all expressions. `fails` makes the next match fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.fails = False
        self._compile = regexes.compile_regex
        monkeypatch.setattr(regexes, "compile_regex", self.compile)

    def compile(self, pattern: str) -> Callable[[str], bool]:
        is_match = self._compile(pattern)

        def matches(name: str) -> bool:
            if self.fails:
                self.fails = False
                raise MemoryError
            self.names.append(name)
            return is_match(name)

        return matches

    def take(self) -> list[str]:
        taken, self.names = self.names, []
        return taken


def test_an_expression_is_matched_once_until_the_topics_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matching = Matching(monkeypatch)
    world = ConsumersWorld()
    world.create_topic("topic-a", 1)
    world.create_topic("topic-b", 1)
    known = set(world.replicas.image.topics.names())
    world.hidden.add("topic-b")
    world.subscribe("m1", subscribed_topic_regex="topic-.*", group="g1")
    world.run_for(100)
    assert set(matching.take()) == known
    # Another group, whose member may read another topic.
    world.hidden = {"topic-a"}
    world.subscribe("m2", subscribed_topic_regex="topic-.*", group="g2")
    world.run_for(100)
    assert matching.take() == []
    assert world.owned(world.beat("m1", 1, group="g1")) == {"topic-a": {0}}
    assert world.owned(world.beat("m2", 1, group="g2")) == {"topic-b": {0}}
    world.hidden = set()
    world.create_topic("topic-c", 1)
    world.run_for(11_000)
    world.beat("m1", 2, group="g1")
    world.run_for(100)
    assert set(matching.take()) == {*known, "topic-c"}
    owned = world.owned(world.beat("m1", 2, group="g1"))
    assert owned == {"topic-a": {0}, "topic-b": {0}, "topic-c": {0}}
    world.delete_topic("topic-c")
    world.subscribe("m3", subscribed_topic_regex="topic-.*", group="g3")
    world.run_for(100)
    assert set(matching.take()) == known


def test_a_later_heartbeat_repeats_a_failed_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    matching = Matching(monkeypatch)
    world = ConsumersWorld()
    world.create_topic("topic-a", 1)
    matching.fails = True
    world.subscribe("m", subscribed_topic_regex="topic-.*")
    world.run_for(100)
    assert not world.owned(world.beat("m", 1))
    world.run_for(100)
    assert world.owned(world.beat("m", 1)) == {"topic-a": {0}}


def test_kept_matches_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_shard, "_KEPT_EXPRESSIONS_MAX", 3)
    monkeypatch.setattr(consumer_shard, "_KEPT_NAMES_MAX", 10)
    kept = MatchedTopics()
    for regex in ("a", "b", "c"):
        kept.add(regex, Matched(1, ["t"] * 3))
    kept.find("a")
    kept.add("d", Matched(1, []))
    assert [each for each in "abcd" if kept.find(each)] == ["a", "c", "d"]
    kept.add("c", Matched(1, ["t"] * 9))
    assert [each for each in "abcd" if kept.find(each)] == ["c", "d"]
    kept.add("e", Matched(1, ["t"] * 11))
    assert [each for each in "abcde" if kept.find(each)] == []
