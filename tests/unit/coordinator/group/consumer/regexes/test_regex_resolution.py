"""Regular expressions over many topics: matched in slices of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.group.consumer.regexes import regex_resolution
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.state_partition import StatePartition
from unit.coordinator.consumers_world import ConsumersWorld
from unit.coordinator.coordinator_world import Topics

TOPICS = 10_000


@pytest.mark.parametrize("regex", ["topic-.*", "(a|aa)+$|topic-(.*)(.*)(.*)[0-8]", "nothing"])
def test_an_expression_is_matched_with_one_topic_after_the_other(
    regex: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regex_resolution, "_SLICE_MS", -1)
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

    compile_regex = regex_resolution.compile_regex

    def counting(pattern: str) -> Callable[[str], bool]:
        is_match = compile_regex(pattern)

        def matches(name: str) -> bool:
            matched.append(name)
            return is_match(name)

        return matches

    monkeypatch.setattr(regex_resolution, "compile_regex", counting)
    monkeypatch.setattr(StatePartition, "_on_timer", on_timer)
    world = ConsumersWorld()
    joined = world.subscribe("m", subscribed_topic_regex=regex)
    assert joined.error_code == 0
    assert not matched
    # The wheel runs one slice in a millisecond.
    world.run_for(TOPICS + 100)
    assert matched == names
    assert slices > TOPICS
    (shard,) = world.coordinator.runtime.active_shards()
    group = shard.consumer_groups.groups.find("g")
    assert group is not None
    expected = {"topic-.*": TOPICS, "nothing": 0}.get(regex, TOPICS * 9 // 10)
    assert len(group.resolved[regex].topics) == expected
