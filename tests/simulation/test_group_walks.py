"""Members of share groups and consumer groups of three simulated brokers, under faults from seeds.

`make group-walks` plays more of them.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from barnabas.coordinator.runtime.state_partition import StatePartition
from chaos.groups.share_history import Answer
from simulation.groups import member_walk, share_walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult

SECONDS = 5.0


@pytest.fixture
def failing_timers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every second timer of a coordinator raise. Return the list of their numbers."""
    run, numbers, failed = StatePartition._on_timer, itertools.count(1), []

    def failing(partition: StatePartition, operation: Callable[[], CoordinatorResult]) -> None:
        number = next(numbers)
        if number % 2:
            failed.append(number)
            raise MemoryError
        run(partition, operation)

    monkeypatch.setattr(StatePartition, "_on_timer", failing)
    return failed


@pytest.mark.parametrize("style", ["mixed", "resets"])
def test_share_groups_keep_their_promises_under_faults(style: str) -> None:
    walk = share_walk.ShareWalk(201, share_walk.STYLES[style])
    verdict = walk.play(SECONDS)
    assert verdict.is_clean, f"{verdict}\n{walk.log}"
    deliveries = walk.world.history.deliveries
    answers = [ack.answer for each in deliveries for ack in each.acknowledgements]
    assert answers.count(Answer.ACCEPTED) > 100
    assert {each.count for each in deliveries} > {1}
    assert walk.log


def test_a_share_walk_is_the_same_each_time() -> None:
    histories = []
    for _ in range(2):
        walk = share_walk.ShareWalk(202, share_walk.STYLES["members"])
        walk.play(1.5)
        histories.append(walk.world.history)
    assert histories[0] == histories[1]


def test_share_groups_keep_their_promises_over_power_losses_of_all_nodes() -> None:
    """Batches are synced before they are acknowledged."""
    style = share_walk.Style(actions=0.0, faults=0.6, chosen=("_lose_all_power",))
    walk = share_walk.ShareWalk(203, style, is_synced=True)
    verdict = walk.play(SECONDS)
    assert verdict.is_clean, f"{verdict}\n{walk.log}"
    assert walk.log


@pytest.mark.parametrize("style", ["mixed", "isolated"])
def test_consumer_groups_keep_their_promises_under_faults(style: str) -> None:
    walk = member_walk.MemberWalk(201, member_walk.STYLES[style])
    verdict = walk.play(SECONDS)
    assert verdict.is_clean, f"{verdict}\n{walk.log}"
    kinds = [each.kind for each in walk.world.history.events]
    assert kinds.count("processed") > 100
    assert kinds.count("committed") > 20
    assert kinds.count("revoked") > 0
    assert walk.world.history.probes


def test_a_member_walk_is_the_same_each_time() -> None:
    histories = []
    for _ in range(2):
        walk = member_walk.MemberWalk(202, member_walk.STYLES["members"])
        walk.play(1.5)
        histories.append(walk.world.history)
    assert histories[0] == histories[1]


def test_consumer_groups_keep_their_promises_over_power_losses_of_all_nodes() -> None:
    """Batches are synced before they are acknowledged."""
    style = member_walk.Style(
        actions=0.5, faults=0.6, chosen=("_lose_all_power", "_join", "_leave")
    )
    walk = member_walk.MemberWalk(203, style, is_synced=True)
    verdict = walk.play(SECONDS)
    assert verdict.is_clean, f"{verdict}\n{walk.log}"
    assert walk.log


def test_consumer_groups_keep_their_promises_while_timers_fail(failing_timers: list[int]) -> None:
    walk = member_walk.MemberWalk(204, member_walk.STYLES["mixed"])
    verdict = walk.play(SECONDS)
    assert verdict.is_clean, f"{verdict}\n{walk.log}"
    assert failing_timers
