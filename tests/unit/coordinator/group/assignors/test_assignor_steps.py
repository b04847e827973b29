"""No step of an assignor handles more than a limited number of members and partitions."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from barnabas.coordinator.group.consumer.consumer_assignors import assign_ranges, assign_uniformly
from barnabas.coordinator.group.share.simple_assignor import assign_simply
from barnabas.coordinator.group.streams.task_assignors import (
    StreamsInput,
    StreamsMemberInput,
    SubtopologyInput,
    assign_sticky,
)
from barnabas.coordinator.group.targets import (
    AssignorInput,
    MemberInput,
)
from selection import nightly_unless
from unit.coordinator.instructions import Instructions

# Limit of a step: less than SHORT_SLICE_MS. Work in one step for each member or partition of these
# groups exceeds the limit, unless it is a list or a sort of all of them.
STEP_INSTRUCTIONS_MAX = 150_000

# Numbers of members, of topics and of partitions of each topic.
SHAPES = [(200, 1, 2_000), (2, 1, 4_000), (2, 400, 5), (400, 1, 400)]


def run(steps: Generator[None, None, dict[str, Any]]) -> dict[str, Any]:
    """Return the targets. Assert that each step is short."""
    instructions, found = Instructions(), dict[str, Any]()

    def step() -> None:
        try:
            next(steps)
        except StopIteration as end:
            found.update(end.value)

    while not found:
        instructions.count(step)
    assert max(instructions.counts) < STEP_INSTRUCTIONS_MAX
    return found


@pytest.mark.parametrize("is_homogeneous", nightly_unless(lambda each: not each, [False, True]))
@pytest.mark.parametrize(("members", "topics", "partitions"), SHAPES)
@pytest.mark.parametrize("assign", [assign_uniformly, assign_ranges, assign_simply])
def test_a_step_of_an_assignor_handles_few_members_and_partitions(
    assign: Callable[[AssignorInput], Generator[None, None, dict[str, Any]]],
    members: int,
    topics: int,
    partitions: int,
    is_homogeneous: bool,
) -> None:
    counts = {number.to_bytes(16): partitions for number in range(1, topics + 1)}
    every = frozenset(counts)
    some = every if is_homogeneous else frozenset(sorted(counts)[: max(1, topics // 2)])
    targets: dict[str, Any] = {}
    for joined in range(2):
        # All members join, and then another one, which takes partitions of the others.
        given = {
            f"m{number}": MemberInput(every if number % 2 else some, targets.get(f"m{number}", {}))
            for number in range(members + joined)
        }
        steps = assign(AssignorInput(given, counts, is_homogeneous))
        targets = run(steps)
    assert len(targets) == members + 1


@pytest.mark.parametrize("standby_replicas", [0, 1])
@pytest.mark.parametrize(("members", "subtopologies", "tasks"), SHAPES)
def test_a_step_of_the_task_assignor_handles_few_members_and_tasks(
    members: int, subtopologies: int, tasks: int, standby_replicas: int
) -> None:
    inputs = {str(number): SubtopologyInput(tasks, True) for number in range(subtopologies)}
    targets: dict[str, Any] = {}
    for joined in range(2):
        given = {
            f"m{number}": StreamsMemberInput(
                f"p{number}", *((targets[f"m{number}"],) if f"m{number}" in targets else ())
            )
            for number in range(members + joined)
        }
        steps = assign_sticky(StreamsInput(given, inputs, standby_replicas))
        targets = run(steps)
    assert len(targets) == members + 1
