"""Properties of the placement of replicas, for random machines, racks and fenced brokers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings, strategies as st

from barnabas.controller.partitions.placement import PlacementSpec, StripedPlacer, UsableBroker
from barnabas.runtime.rng import SeededRng

Clusters = tuple[list[UsableBroker], int, int]


@st.composite
def clusters(draw: st.DrawFn, with_racks: bool | None = None, with_fenced: bool = True) -> Clusters:
    """Return brokers on machines in racks, a replication factor, and a seed."""
    if with_racks is None:
        with_racks = draw(st.booleans())
    usable: list[UsableBroker] = []
    for number in range(draw(st.integers(2, 6))):
        rack = f"rack{draw(st.integers(0, 2))}" if with_racks else None
        for _ in range(draw(st.integers(1, 4))):
            is_fenced = with_fenced and draw(st.integers(0, 3)) == 0
            usable.append(UsableBroker(len(usable), rack, is_fenced, f"host{number}"))
    if all(broker.fenced for broker in usable):
        usable[0] = usable[0]._replace(fenced=False)
    factor = draw(st.integers(1, len(usable)))
    return usable, factor, draw(st.integers(0, 1_000_000))


def placed(cluster: Clusters, count: int) -> list[list[UsableBroker]]:
    usable, factor, seed = cluster
    found = StripedPlacer(SeededRng(seed)).place(PlacementSpec(count, factor), usable)
    return [[usable[broker] for broker in replicas] for replicas in found]


@given(clusters(), st.integers(1, 40))
@settings(deadline=None, max_examples=300)
def test_replicas_share_a_machine_only_if_every_machine_with_a_free_broker_has_as_many(
    cluster: Clusters, count: int
) -> None:
    usable, factor, _ = cluster
    for replicas in placed(cluster, count):
        assert len({broker.id for broker in replicas}) == factor
        on = Counter(broker.machine for broker in replicas)
        free = {broker.machine for broker in usable if broker not in replicas}
        if free:
            assert max(on.values()) - min(on[machine] for machine in free) <= 1


@given(clusters(), st.integers(1, 40))
@settings(deadline=None, max_examples=300)
def test_replicas_have_as_many_racks_as_possible_and_a_live_leader(
    cluster: Clusters, count: int
) -> None:
    usable, factor, _ = cluster
    racks = len({broker.rack for broker in usable})
    for replicas in placed(cluster, count):
        assert not replicas[0].fenced
        assert len({broker.rack for broker in replicas}) == min(racks, factor)


@given(clusters(), st.integers(1, 40))
@settings(deadline=None, max_examples=300)
def test_a_fenced_broker_is_used_only_if_no_live_broker_was_free_on_its_machine(
    cluster: Clusters, count: int
) -> None:
    usable, _, _ = cluster
    for replicas in placed(cluster, count):
        fenced = {broker.machine for broker in replicas if broker.fenced}
        free = {each.machine for each in usable if not each.fenced and each not in replicas}
        assert not fenced & free


@given(clusters(with_racks=False, with_fenced=False), st.integers(1, 4))
@settings(deadline=None, max_examples=300)
def test_each_broker_leads_the_same_number_of_partitions(cluster: Clusters, rounds: int) -> None:
    usable, _, _ = cluster
    leads = Counter(replicas[0].id for replicas in placed(cluster, len(usable) * rounds))
    assert leads == {broker.id: rounds for broker in usable}


@given(clusters(), st.integers(1, 40))
@settings(deadline=None, max_examples=200)
def test_machines_change_nothing_if_each_broker_has_its_own_or_all_share_one(
    cluster: Clusters, count: int
) -> None:
    usable, factor, seed = cluster
    results = []
    for machine in ("host", "host{0}", None):
        renamed = [each._replace(machine=machine and machine.format(each.id)) for each in usable]
        results.append([[each.id for each in r] for r in placed((renamed, factor, seed), count)])
    assert results[0] == results[1] == results[2]
