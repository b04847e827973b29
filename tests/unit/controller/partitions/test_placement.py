"""Placement of replicas."""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.controller.partitions.new_partitions import (
    NewPartitions,
    PlacementSpec,
    StripedPlacer,
    UsableBroker,
)
from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.nodes import (
    BrokerRegistrationChangeRecord,
)
from barnabas.runtime.rng import SeededRng
from unit.metadata.clusters import directory, image_of, three_brokers


def brokers(*ids: int, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(each, None, each in fenced) for each in ids]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_leaders_and_replicas_are_spread_evenly(count: int, factor: int) -> None:
    if factor > count:
        return
    placer = StripedPlacer(SeededRng(count))
    placed = placer.place(PlacementSpec(count * 12, factor), brokers(*range(count)))
    assert set(Counter(each[0] for each in placed).values()) == {12}
    assert all(len(set(each)) == factor for each in placed)
    every = Counter(broker for each in placed for broker in each)
    assert max(every.values()) - min(every.values()) <= count


def test_partitions_of_one_leader_have_different_followers() -> None:
    placed = StripedPlacer(SeededRng(1)).place(PlacementSpec(60, 2), brokers(1, 2, 3, 4))
    followers = {each[1] for each in placed if each[0] == 1}
    assert followers == {2, 3, 4}


def test_a_fenced_broker_never_leads_and_comes_last() -> None:
    placed = StripedPlacer(SeededRng(1)).place(PlacementSpec(9, 3), brokers(1, 2, 3, fenced=(2,)))
    assert all(each[2] == 2 for each in placed)
    alone = StripedPlacer(SeededRng(1)).place(PlacementSpec(9, 2), brokers(1, 2, 3, fenced=(2,)))
    assert all(2 not in each for each in alone)


@pytest.mark.parametrize("usable", [brokers(), brokers(1), brokers(1, 2, fenced=(1, 2))])
def test_too_few_brokers_are_an_error(usable: list[UsableBroker]) -> None:
    with pytest.raises(Refusal) as caught:
        StripedPlacer(SeededRng(1)).place(PlacementSpec(1, 2), usable)
    assert caught.value.error_code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_the_replicas_of_a_partition_lie_in_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    usable = [UsableBroker(each, rack, fenced=False) for each, rack in racks.items()]
    placed = StripedPlacer(SeededRng(7)).place(PlacementSpec(600, 3), usable)
    assert all({racks[each] for each in replicas} == {"a", "b", "c"} for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {100}
    wider = StripedPlacer(SeededRng(7)).place(PlacementSpec(60, 4), usable)
    assert all(len(set(replicas)) == 4 for replicas in wider)
    assert all({racks[each] for each in replicas} == {"a", "b", "c"} for replicas in wider)


def test_racks_of_different_sizes_lead_the_same_number_of_partitions() -> None:
    usable = [UsableBroker(1, "a", False), UsableBroker(2, "b", False), UsableBroker(3, "b", False)]
    placed = StripedPlacer(SeededRng(3)).place(PlacementSpec(100, 2), usable)
    assert all({1} < set(replicas) for replicas in placed)
    assert Counter(replicas[0] for replicas in placed)[1] == 50


def test_a_fenced_broker_of_a_rack_is_used_after_its_live_brokers() -> None:
    usable = [UsableBroker(1, "a", True), UsableBroker(2, "b", False), UsableBroker(3, "b", False)]
    placed = StripedPlacer(SeededRng(3)).place(PlacementSpec(20, 2), usable)
    assert all(replicas[0] in (2, 3) and replicas[1] == 1 for replicas in placed)


def test_all_numbers_of_brokers_racks_and_replicas_can_be_placed() -> None:
    rng = SeededRng(5)
    for _ in range(300):
        count = rng.randint(1, 8)
        usable = [
            UsableBroker(each, (None, "a", "b", "c")[rng.randint(0, 3)], rng.random() < 0.3)
            for each in range(count - 1)
        ]
        usable.append(UsableBroker(count, None, fenced=False))
        factor = rng.randint(1, count)
        placed = StripedPlacer(rng).place(PlacementSpec(rng.randint(1, 30), factor), usable)
        live = {each.id for each in usable if not each.fenced}
        assert all(len(set(each)) == factor and each[0] in live for each in placed)


def test_brokers_that_shut_down_or_are_cordoned_get_no_new_replica() -> None:
    leaving = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=1)
    cordoned = BrokerRegistrationChangeRecord(
        broker_id=2, broker_epoch=5, cordoned_log_dirs=[directory(2)]
    )
    new = NewPartitions(image_of(leaving, cordoned, base=three_brokers()))
    assert new.place(StripedPlacer(SeededRng(1)), 4, 1) == [[3]] * 4
    with pytest.raises(Refusal) as caught:
        new.place(StripedPlacer(SeededRng(1)), 1, 2)
    assert caught.value.error_code is ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(Refusal) as caught:
        new.check_assignments([[3, 2]], None)
    assert caught.value.error_code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
