"""Where replicas go."""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.controller.placement import PlacementSpec, StripedPlacer, UsableBroker
from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.rng import SeededRng


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
    placed = StripedPlacer(SeededRng(1)).place(PlacementSpec(12, 2), brokers(1, 2, 3, 4))
    followers = {each[1] for each in placed if each[0] == 1}
    assert followers == {2, 3, 4}


def test_a_fenced_broker_never_leads_and_comes_last() -> None:
    placed = StripedPlacer(SeededRng(1)).place(PlacementSpec(9, 3), brokers(1, 2, 3, fenced=(2,)))
    assert all(each[2] == 2 for each in placed)
    alone = StripedPlacer(SeededRng(1)).place(PlacementSpec(9, 2), brokers(1, 2, 3, fenced=(2,)))
    assert all(2 not in each for each in alone)


@pytest.mark.parametrize("usable", [brokers(), brokers(1), brokers(1, 2, fenced=(1, 2))])
def test_too_few_brokers_are_told(usable: list[UsableBroker]) -> None:
    with pytest.raises(Refusal) as caught:
        StripedPlacer(SeededRng(1)).place(PlacementSpec(1, 2), usable)
    assert caught.value.error_code is ErrorCode.INVALID_REPLICATION_FACTOR
