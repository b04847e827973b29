"""Reassignment plans move few replicas and leave brokers balanced."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

from barnabas.cli.partitions.planning import (
    Move,
    PlanError,
    moves,
    plan_assignment,
    sharing_machines,
)
from barnabas.client.topic_partition import TopicPartition


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def assignment(*replicas: list[int]) -> dict[TopicPartition, list[int]]:
    return {tp(number): each for number, each in enumerate(replicas)}


def no_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_an_even_assignment_does_not_change() -> None:
    current = assignment([1, 2], [2, 3], [3, 1])
    assert plan_assignment(current, no_racks(1, 2, 3)) == current


def test_replicas_of_a_removed_broker_move_to_the_least_loaded_brokers() -> None:
    current = assignment([1, 2, 4], [2, 3, 4], [3, 1, 4])
    planned = plan_assignment(current, no_racks(1, 2, 3))
    assert [set(each) for each in planned.values()] == [{1, 2, 3}] * 3
    assert [each[0] for each in planned.values()] == [1, 2, 3]


def test_a_new_broker_gets_its_share_with_the_fewest_moves() -> None:
    current = assignment([1, 2], [2, 3], [3, 1], [1, 2], [2, 3], [3, 1])
    planned = moves(current, plan_assignment(current, no_racks(1, 2, 3, 4)))
    assert sum(len(move.adding) for move in planned) == 3
    assert {replica for move in planned for replica in move.adding} == {4}


def test_a_smaller_factor_only_removes_replicas_and_keeps_leaders() -> None:
    current = assignment([1, 2, 3], [2, 3, 1], [3, 1, 2])
    planned = plan_assignment(current, no_racks(1, 2, 3), 2)
    assert [each[0] for each in planned.values()] == [1, 2, 3]
    assert not any(move.adding for move in moves(current, planned))


def test_replicas_go_to_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    planned = plan_assignment(assignment([1, 2], [3, 4]), racks)
    for replicas in planned.values():
        assert {racks[replica] for replica in replicas} == {"a", "b"}


def test_reordering_replicas_balances_leaders() -> None:
    current = assignment([1, 2, 3], [1, 2, 3], [1, 2, 3])
    planned = plan_assignment(current, no_racks(1, 2, 3))
    assert sorted(each[0] for each in planned.values()) == [1, 2, 3]
    assert not any(move.adding or move.removing for move in moves(current, planned))


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(PlanError, match=r"t-0 requires 3 replicas, but the only brokers are 1,2"):
        plan_assignment(assignment([1, 2, 3]), no_racks(1, 2))


def test_a_move_lists_added_and_removed_replicas() -> None:
    move = Move(tp(0), (1, 2), (2, 3))
    assert (move.adding, move.removing) == ((3,), (1,))


MACHINES = {10: "host1", 11: "host1", 20: "host2", 21: "host2", 30: "host3", 31: "host3"}


def test_replicas_go_to_different_machines() -> None:
    current = assignment([10, 11], [20, 21], [30, 31])
    planned = plan_assignment(current, no_racks(*MACHINES), machines=MACHINES)
    assert all(len({MACHINES[node] for node in nodes}) == 2 for nodes in planned.values())
    assert sum(len(move.adding) for move in moves(current, planned)) == 3
    more = plan_assignment(current, no_racks(*MACHINES), 3, MACHINES)
    assert all(len({MACHINES[node] for node in nodes}) == 3 for nodes in more.values())


def test_partitions_that_share_a_machine_without_need_are_named() -> None:
    current = assignment([10, 11], [10, 20], [10, 20, 21])
    assert sharing_machines(current, MACHINES, MACHINES) == [tp(0), tp(2)]
    assert sharing_machines(current, MACHINES, [10, 11]) == []
    assert sharing_machines(current, dict.fromkeys(MACHINES, "host"), MACHINES) == []


@st.composite
def clusters(
    draw: st.DrawFn,
) -> tuple[dict[TopicPartition, list[int]], dict[int, str | None]]:
    brokers = list(range(1, draw(st.integers(2, 7)) + 1))
    kept = draw(st.lists(st.sampled_from(brokers), min_size=1, unique=True))
    factor = draw(st.integers(1, len(kept)))
    replicas = st.permutations(brokers).map(lambda order: order[:factor])
    return assignment(*draw(st.lists(replicas, min_size=1, max_size=20))), no_racks(*kept)


@settings(max_examples=100)
@given(clusters())
def test_plans_are_balanced_with_few_moves(
    case: tuple[dict[TopicPartition, list[int]], dict[int, str | None]],
) -> None:
    current, racks = case
    planned = plan_assignment(current, racks)
    load: Counter[int] = Counter(dict.fromkeys(racks, 0))
    for before, after in zip(current.values(), planned.values(), strict=True):
        assert len(after) == len(before) == len(set(after))
        assert set(after) <= set(racks)
        load.update(after)
    assert max(load.values()) - min(load.values()) <= 1
    moved = sum(len(move.adding) for move in moves(current, planned))
    # A broker with more than its share gives the surplus away; the broker with the most may keep
    # one more.
    kept = sorted((sum(b in r for r in current.values()) for b in racks), reverse=True)
    total = sum(len(replicas) for replicas in current.values())
    share, rest = divmod(total, len(racks))
    shares = [share + (index < rest) for index in range(len(kept))]
    least = sum(max(0, part - have) for have, part in zip(kept, shares, strict=True))
    # A replica that must leave may find only brokers that have their share: they give another away.
    forced = sum(len(set(replicas) - set(racks)) for replicas in current.values())
    assert max(least, forced) <= moved <= least + forced
