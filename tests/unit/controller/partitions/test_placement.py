"""Placement of replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from barnabas.controller.partitions.new_partitions import NewPartitions
from barnabas.controller.partitions.placement import (
    PlacementSpec,
    StripedPlacer,
    UsableBroker,
)
from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.nodes import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from barnabas.runtime.rng import SeededRng
from steps import finish
from unit.metadata.clusters import broker, directory, image_of, three_brokers


def placed_by(
    seed: int, count: int, factor: int, usable: Sequence[UsableBroker]
) -> list[list[int]]:
    """Return the replicas of `count` partitions."""
    return list(StripedPlacer(SeededRng(seed)).place(PlacementSpec(count, factor), usable))


def brokers(*ids: int, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(each, None, each in fenced) for each in ids]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_leaders_and_replicas_are_spread_evenly(count: int, factor: int) -> None:
    if factor > count:
        return
    placed = placed_by(count, count * 12, factor, brokers(*range(count)))
    assert set(Counter(each[0] for each in placed).values()) == {12}
    assert all(len(set(each)) == factor for each in placed)
    every = Counter(broker for each in placed for broker in each)
    assert max(every.values()) - min(every.values()) <= count


def test_partitions_of_one_leader_have_different_followers() -> None:
    placed = placed_by(1, 60, 2, brokers(1, 2, 3, 4))
    followers = {each[1] for each in placed if each[0] == 1}
    assert followers == {2, 3, 4}


def test_a_fenced_broker_never_leads_and_comes_last() -> None:
    placed = placed_by(1, 9, 3, brokers(1, 2, 3, fenced=(2,)))
    assert all(each[2] == 2 for each in placed)
    alone = placed_by(1, 9, 2, brokers(1, 2, 3, fenced=(2,)))
    assert all(2 not in each for each in alone)


@pytest.mark.parametrize("usable", [brokers(), brokers(1), brokers(1, 2, fenced=(1, 2))])
def test_too_few_brokers_are_an_error(usable: list[UsableBroker]) -> None:
    with pytest.raises(Refusal) as caught:
        placed_by(1, 1, 2, usable)
    assert caught.value.error_code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_the_replicas_of_a_partition_lie_in_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    usable = [UsableBroker(each, rack, fenced=False) for each, rack in racks.items()]
    placed = placed_by(7, 600, 3, usable)
    assert all({racks[each] for each in replicas} == {"a", "b", "c"} for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {100}
    wider = placed_by(7, 60, 4, usable)
    assert all(len(set(replicas)) == 4 for replicas in wider)
    assert all({racks[each] for each in replicas} == {"a", "b", "c"} for replicas in wider)


def test_racks_of_different_sizes_lead_the_same_number_of_partitions() -> None:
    usable = [UsableBroker(1, "a", False), UsableBroker(2, "b", False), UsableBroker(3, "b", False)]
    placed = placed_by(3, 100, 2, usable)
    assert all({1} < set(replicas) for replicas in placed)
    assert Counter(replicas[0] for replicas in placed)[1] == 50


def test_a_fenced_broker_of_a_rack_is_used_after_its_live_brokers() -> None:
    usable = [UsableBroker(1, "a", True), UsableBroker(2, "b", False), UsableBroker(3, "b", False)]
    placed = placed_by(3, 20, 2, usable)
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
        placed = list(StripedPlacer(rng).place(PlacementSpec(rng.randint(1, 30), factor), usable))
        live = {each.id for each in usable if not each.fenced}
        assert all(len(set(each)) == factor and each[0] in live for each in placed)


def test_brokers_that_shut_down_or_are_cordoned_get_no_new_replica() -> None:
    leaving = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=1)
    cordoned = BrokerRegistrationChangeRecord(
        broker_id=2, broker_epoch=5, cordoned_log_dirs=[directory(2)]
    )
    new = NewPartitions(image_of(leaving, cordoned, base=three_brokers()))
    assert finish(new.place(StripedPlacer(SeededRng(1)), 4, 1)) == [[3]] * 4
    with pytest.raises(Refusal) as caught:
        finish(new.place(StripedPlacer(SeededRng(1)), 1, 2))
    assert caught.value.error_code is ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(Refusal) as caught:
        new.check_assignments([[3, 2]], None)
    assert caught.value.error_code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def on_machines(**brokers_of: tuple[int, ...]) -> list[UsableBroker]:
    """Return live brokers by the name of their machine."""
    return [
        UsableBroker(broker, None, fenced=False, machine=machine)
        for machine, ids in brokers_of.items()
        for broker in ids
    ]


def test_each_broker_of_equal_machines_leads_and_follows_as_often_as_the_others() -> None:
    usable = on_machines(host1=(10, 11), host2=(20, 21), host3=(30, 31))
    placed = placed_by(1, 6, 3, usable)
    assert all(len({broker // 10 for broker in replicas}) == 3 for replicas in placed)
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys((10, 11, 20, 21, 30, 31), 1)
    assert Counter(broker for replicas in placed for broker in replicas) == dict.fromkeys(
        (10, 11, 20, 21, 30, 31), 3
    )


def test_a_fenced_machine_is_used_before_a_second_broker_of_a_live_one() -> None:
    usable = [
        *on_machines(host1=(10, 11), host2=(20, 21)),
        UsableBroker(30, None, fenced=True, machine="host3"),
    ]
    placed = placed_by(1, 20, 3, usable)
    assert all(replicas[0] != 30 and 30 in replicas for replicas in placed)
    assert all(len({broker // 10 for broker in replicas}) == 3 for replicas in placed)


def test_more_replicas_than_machines_are_spread_evenly_over_them() -> None:
    usable = on_machines(host1=(10, 11, 12), host2=(20, 21, 22))
    for replicas in placed_by(1, 20, 4, usable):
        assert Counter(broker // 10 for broker in replicas) == {1: 2, 2: 2}


def test_the_hosts_of_the_listeners_name_the_machines() -> None:
    image = image_of(*(on_host(broker, f"host{broker // 10}") for broker in (10, 11, 20)))
    placed = finish(NewPartitions(image).place(StripedPlacer(SeededRng(1)), 20, 2))
    assert all(len({broker // 10 for broker in replicas}) == 2 for replicas in placed)


def on_host(broker_id: int, host: str) -> RegisterBrokerRecord:
    """Return the registration of a live broker on a host."""
    record = broker(broker_id)
    record.end_points[0].host = host
    return record


def test_the_placement_of_brokers_on_one_machine_or_on_their_own_is_that_of_kafka() -> None:
    # These are the replicas that the placement without machines returns for the seed.
    expected = [[2, 3, 4], [3, 4, 1], [4, 1, 2], [1, 2, 3], [2, 1, 3], [1, 3, 4]]
    for machine in (None, "host{0}", "one host"):
        usable = [
            UsableBroker(each, None, False, machine and machine.format(each))
            for each in (1, 2, 3, 4)
        ]
        assert placed_by(1, 6, 3, usable) == expected
