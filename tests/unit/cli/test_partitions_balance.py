"""Plans that balance brokers by size and traffic keep replicas apart and copy little."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

from barnabas.cli.partitions.balancing import (
    BrokerLoad,
    PartitionLoad,
    broker_loads,
    plan_balance,
)
from barnabas.cli.partitions.planning import PlanError, moves
from barnabas.cli.partitions.rebalance import byte_rate
from barnabas.client.topic_partition import TopicPartition

GIB = 1 << 30
Replicas = dict[TopicPartition, list[int]]
Loads = dict[TopicPartition, PartitionLoad]
Racks = dict[int, str | None]


def cluster(*partitions: tuple[list[int], int, float]) -> tuple[Replicas, Loads]:
    """Return partitions with replicas, size and traffic."""
    named = {TopicPartition("t", number): each for number, each in enumerate(partitions)}
    replicas = {tp: list(nodes) for tp, (nodes, _, _) in named.items()}
    return replicas, {tp: PartitionLoad(size, rate) for tp, (_, size, rate) in named.items()}


def racks(*brokers: int) -> Racks:
    return dict.fromkeys(brokers)


def copied(current: Replicas, planned: Replicas, loads: Loads) -> int:
    return sum(len(move.adding) * loads[move.partition].size for move in moves(current, planned))


def test_a_balanced_cluster_does_not_change() -> None:
    current, loads = cluster(([1, 2], GIB, 5.0), ([2, 3], GIB, 5.0), ([3, 1], GIB, 5.0))
    assert plan_balance(current, loads, racks(1, 2, 3)) == current


def test_a_cluster_without_partitions_needs_no_plan() -> None:
    assert plan_balance({}, {}, racks(1, 2)) == {}


def test_a_new_broker_gets_its_share_of_the_bytes_and_nothing_else_is_copied() -> None:
    parts = [([number % 3 + 1, (number + 1) % 3 + 1], GIB, 0.0) for number in range(12)]
    current, loads = cluster(*parts)
    planned = plan_balance(current, loads, racks(1, 2, 3, 4))
    after = broker_loads(planned, loads, (1, 2, 3, 4))
    assert [load.size for load in after.values()] == [6 * GIB] * 4
    assert {node for move in moves(current, planned) for node in move.adding} == {4}
    assert copied(current, planned, loads) == 6 * GIB


def test_one_large_partition_outweighs_many_small_ones() -> None:
    small = [([1], GIB, 0.0)] * 8
    current, loads = cluster(([1], 8 * GIB, 0.0), *small)
    planned = plan_balance(current, loads, racks(1, 2))
    after = broker_loads(planned, loads, (1, 2))
    assert after[1].size == after[2].size == 8 * GIB


def test_busy_partitions_are_separated_and_the_small_one_is_copied() -> None:
    current, loads = cluster(
        ([1], 100 * GIB, 1000.0), ([1], GIB, 1000.0), ([2], 100 * GIB, 0.0), ([2], GIB, 0.0)
    )
    planned = plan_balance(current, loads, racks(1, 2))
    after = broker_loads(planned, loads, (1, 2))
    assert after[1].rate == after[2].rate == 1000.0
    assert copied(current, planned, loads) <= 2 * GIB


def test_an_empty_broker_gets_empty_partitions_too() -> None:
    current, loads = cluster(*[([1], 0, 0.0)] * 4)
    planned = plan_balance(current, loads, racks(1, 2))
    assert [load.replicas for load in broker_loads(planned, loads, (1, 2)).values()] == [2, 2]


def test_a_broker_that_is_left_out_becomes_empty() -> None:
    current, loads = cluster(([1, 2], GIB, 0.0), ([2, 3], GIB, 0.0), ([3, 1], GIB, 0.0))
    planned = plan_balance(current, loads, racks(1, 2))
    assert all(set(nodes) == {1, 2} for nodes in planned.values())
    assert copied(current, planned, loads) == 2 * GIB


def test_too_few_brokers_are_refused() -> None:
    current, loads = cluster(([1, 2, 3], GIB, 0.0))
    with pytest.raises(PlanError, match=r"t-0 requires 3 replicas, but the only brokers are 1,2"):
        plan_balance(current, loads, racks(1, 2))


def test_only_the_chosen_partitions_move() -> None:
    current, loads = cluster(*[([1], GIB, 0.0)] * 6)
    movable = [tp for tp in current if tp.partition < 2]
    planned = plan_balance(current, loads, racks(1, 2), movable=movable)
    assert {move.partition for move in moves(current, planned)} == set(movable)


def test_leaders_are_spread_by_traffic_without_a_copy() -> None:
    current, loads = cluster(
        ([1, 2], GIB, 90.0), ([1, 2], GIB, 10.0), ([1, 2], GIB, 10.0), ([1, 2], GIB, 90.0)
    )
    planned = plan_balance(current, loads, racks(1, 2))
    assert copied(current, planned, loads) == 0
    led = {1: 0.0, 2: 0.0}
    for tp, nodes in planned.items():
        led[nodes[0]] += loads[tp].rate
    assert led == {1: 100.0, 2: 100.0}


def test_a_replica_of_a_broker_that_becomes_empty_goes_to_another_rack() -> None:
    current, loads = cluster(([1, 3], GIB, 0.0))
    planned = plan_balance(current, loads, {1: "a", 2: "a", 4: "b"})
    assert [set(nodes) for nodes in planned.values()] == [{1, 4}]


MACHINES = {10: "host1", 11: "host1", 20: "host2", 21: "host2", 30: "host3", 31: "host3"}


def test_replicas_leave_a_shared_machine_and_nothing_else_is_copied() -> None:
    current, loads = cluster(
        ([10, 11], GIB, 1.0), ([20, 30], GIB, 1.0), ([21, 31], GIB, 1.0), ([30, 20], GIB, 1.0)
    )
    planned = plan_balance(current, loads, racks(*MACHINES), machines=MACHINES, tolerance=1.0)
    assert planned[TopicPartition("t", 0)][0] == 10
    assert len({MACHINES[node] for node in planned[TopicPartition("t", 0)]}) == 2
    assert copied(current, planned, loads) == GIB


def test_replicas_of_a_machine_that_becomes_empty_do_not_share_another_one() -> None:
    machines = {**MACHINES, 40: "host4", 41: "host4"}
    current, loads = cluster(*[([10 + n % 2, 20 + n % 2, 30 + n % 2], GIB, 1.0) for n in range(8)])
    used = racks(*(broker for broker in machines if broker not in (10, 11)))
    planned = plan_balance(current, loads, used, machines=machines)
    for nodes in planned.values():
        assert {machines[node] for node in nodes} == {"host2", "host3", "host4"}
    assert copied(current, planned, loads) == 8 * GIB


def test_a_broker_that_becomes_a_machine_of_several_gets_no_second_replica() -> None:
    machines = {1: "host1", 2: "host2", 3: "host3", 4: "host3"}
    current, loads = cluster(*[([n % 3 + 1, (n + 1) % 3 + 1], GIB, 1.0) for n in range(12)])
    planned = plan_balance(current, loads, racks(*machines), machines=machines)
    assert all(len({machines[node] for node in nodes}) == 2 for nodes in planned.values())
    assert {node for move in moves(current, planned) for node in move.adding} == {4}
    assert [load.size for load in broker_loads(planned, loads, machines).values()] == [6 * GIB] * 4


def test_broker_loads_count_replicas_and_preferred_leaders() -> None:
    current, loads = cluster(([1, 2], GIB, 5.0), ([1], 2 * GIB, 1.0))
    assert broker_loads(current, loads, (1, 2, 3)) == {
        1: BrokerLoad(2, 2, 3 * GIB, 6.0),
        2: BrokerLoad(1, 0, GIB, 5.0),
        3: BrokerLoad(),
    }


@pytest.mark.nightly
def test_ten_thousand_partitions_are_planned() -> None:
    chance = random.Random(1)
    brokers = list(range(30))
    parts = []
    for _ in range(10_000):
        # Brokers with small numbers have more replicas.
        nodes = sorted(chance.sample(brokers, 6), key=lambda broker: broker * chance.random())[:3]
        parts.append((nodes, int(chance.paretovariate(1.2) * (1 << 20)), chance.random() * 1e5))
    current, loads = cluster(*parts)
    where = {broker: f"rack-{broker % 3}" for broker in brokers}
    planned = plan_balance(current, loads, where)
    after = broker_loads(planned, loads, brokers).values()
    for name, limit in (("size", 1.2), ("rate", 1.2), ("replicas", 1.5)):
        values = [getattr(load, name) for load in after]
        assert max(values) < limit * sum(values) / len(brokers), name


def random_cluster(seed: int) -> tuple[Replicas, Loads, Racks]:
    """Return a cluster with partitions of many sizes, on all brokers but one."""
    chance = random.Random(seed)
    brokers = list(range(1, chance.randint(4, 7)))
    factor = chance.randint(1, len(brokers) - 1)
    current, loads = cluster(
        *(
            (
                chance.sample(brokers[:-1], factor),
                int(chance.paretovariate(1.5) * GIB),
                chance.random() * 1e5,
            )
            for _ in range(chance.choice([6, 12, 30, 100]))
        )
    )
    return current, loads, racks(*brokers)


@pytest.mark.parametrize("seed", range(20))
def test_a_second_plan_moves_nothing(seed: int) -> None:
    current, loads, brokers = random_cluster(seed)
    planned = plan_balance(current, loads, brokers)
    assert planned != current
    assert plan_balance(planned, loads, brokers) == planned


def test_a_little_more_traffic_moves_nothing_after_a_plan() -> None:
    parts = [([number % 3 + 1, (number + 1) % 3 + 1], GIB, 5.0) for number in range(300)]
    current, loads = cluster(*parts)
    planned = plan_balance(current, loads, racks(1, 2, 3, 4))
    chance = random.Random(1)
    later = {tp: PartitionLoad(GIB, 5.0 * chance.uniform(0.7, 1.3)) for tp in loads}
    assert plan_balance(planned, later, racks(1, 2, 3, 4)) == planned


@pytest.mark.parametrize(
    ("record_rate", "records", "log_bytes", "rate"),
    [(10.0, 100, 5000, 500.0), (10.0, 0, 0, 0.0), (0.0, 100, 5000, 0.0), (-5.0, 100, 5000, 0.0)],
)
def test_traffic_is_the_rate_of_records_of_average_size(
    record_rate: float, records: int, log_bytes: int, rate: float
) -> None:
    assert byte_rate(record_rate, records, log_bytes) == rate


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Replicas, Loads, Racks]:
    brokers = list(range(1, draw(st.integers(2, 7)) + 1))
    factor = draw(st.integers(1, len(brokers)))
    nodes = st.permutations(brokers).map(lambda order: order[:factor])
    sizes, rates = st.integers(0, 1 << 40), st.floats(0, 1e9)
    parts = draw(st.lists(st.tuples(nodes, sizes, rates), max_size=25))
    names = st.sampled_from(["a", "b", "c", None])
    where = {broker: draw(names) for broker in brokers}
    return *cluster(*parts), where


def squares(replicas: Replicas, loads: Loads, brokers: Racks) -> float:
    """Return the weighted sum of all squared loads, divided by the averages."""
    found = broker_loads(replicas, loads, brokers).values()
    total = 0.0
    for importance, name in ((64, "size"), (8, "rate"), (1, "replicas")):
        values = [getattr(load, name) for load in found]
        average = sum(values) / len(values)
        total += importance * sum((value / average) ** 2 for value in values) if average else 0.0
    return total


@settings(max_examples=200)
@given(clusters())
def test_a_plan_keeps_replicas_apart_and_never_increases_the_imbalance(
    case: tuple[Replicas, Loads, Racks],
) -> None:
    current, loads, where = case
    planned = plan_balance(current, loads, where)
    for tp, before in current.items():
        after = planned[tp]
        assert len(after) == len(before) == len(set(after))
        assert set(after) <= set(where)
        assert len({where[node] for node in after}) >= len({where[node] for node in before})
    assert squares(planned, loads, where) <= squares(current, loads, where) * (1 + 1e-9)
    assert copied(current, planned, loads) <= sum(
        loads[tp].size * len(nodes) for tp, nodes in current.items()
    )


@settings(max_examples=200)
@given(clusters(), st.data())
def test_replicas_share_a_machine_only_if_there_are_fewer_machines(
    case: tuple[Replicas, Loads, Racks], data: st.DataObject
) -> None:
    current, loads, where = case
    hosts = st.sampled_from(["host1", "host2", "host3", "host4"])
    machines = {broker: data.draw(hosts) for broker in where}
    planned = plan_balance(current, loads, dict.fromkeys(where), machines=machines)
    used = Counter(machines.values())
    for tp, before in current.items():
        after = planned[tp]
        assert len(after) == len(before) == len(set(after))
        if len(used) > 1:
            on = Counter(machines[node] for node in after)
            free = [host for host in used if on[host] < used[host]]
            assert not free or max(on.values()) - min(on[host] for host in free) <= 1
    again = plan_balance(planned, loads, dict.fromkeys(where), machines=machines)
    assert again == planned


@settings(max_examples=100)
@given(clusters(), st.data())
def test_a_plan_empties_the_brokers_that_are_left_out(
    case: tuple[Replicas, Loads, Racks], data: st.DataObject
) -> None:
    current, loads, where = case
    most = max((len(nodes) for nodes in current.values()), default=1)
    kept = data.draw(st.lists(st.sampled_from(sorted(where)), min_size=most, unique=True))
    used = {broker: where[broker] for broker in kept}
    planned = plan_balance(current, loads, used)
    rack_count = len(set(used.values()))
    for tp, before in current.items():
        after = planned[tp]
        assert len(after) == len(before) == len(set(after))
        assert set(after) <= set(used)
        if None not in where.values():
            spread = min(rack_count, len({where[node] for node in before}))
            assert len({where[node] for node in after}) >= spread
