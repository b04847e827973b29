"""Brokers die together or one by one, lose their disks and restart, in every order.

An elected broker always has all acknowledged records. If all brokers died at once and one kept its
disk, every partition gets a leader again.
"""

from __future__ import annotations

from itertools import combinations, permutations, product
from typing import NamedTuple

import pytest

from simulation.data_brokers import BROKERS, DataBrokers

# Every set of brokers that lose their disks.
WIPED = [each for size in range(4) for each in combinations(BROKERS, size)]
# Time between deaths: none, within the time for a reconnect, after it, and longer than a session.
# With the first two, all brokers are dead before the first one is fenced.
DEATH_GAPS_MS = (0, 50, 500, 4_000)
SIMULTANEOUS_MS = 50
START_GAPS_MS = (0, 100, 3_000)


class Order(NamedTuple):
    """One order of events; the order of deaths is fixed, and replicas are placed in every order."""

    starts: tuple[int, ...]
    wiped: tuple[int, ...]
    death_gap_ms: int
    start_gap_ms: int
    # Whether the controller detects closed connections; otherwise sessions expire.
    is_noticed: bool
    # Whether another controller becomes active while the brokers are down.
    has_new_controller: bool
    min_isr: int


ORDERS = [
    Order(*each)
    for each in product(
        permutations(BROKERS),
        WIPED,
        DEATH_GAPS_MS,
        START_GAPS_MS,
        (True, False),
        (False, True),
        (1, 2),
    )
]
# A fixed sample; `python -m simulation.wiped_orders`, from `tests`, plays all of them.
SAMPLE = ORDERS[::61]


def play(order: Order, directories: int = 1) -> DataBrokers:
    """Play one order, and check the result.

    Args:
        directories: number of directories of each broker; the first one is wiped.
    """
    world = DataBrokers(1, order.min_isr, directories)
    for broker_id in BROKERS:
        world.kill(broker_id, is_noticed=order.is_noticed)
        world.live(order.death_gap_ms)
    if order.has_new_controller:
        former = world.hosts.await_active().config.node_id
        world.hosts.kill(former)
        world.hosts.await_active()
        world.hosts.start(former)
    for broker_id in order.wiped:
        world.wipe(broker_id, 0)
    for broker_id in order.starts:
        world.start(broker_id)
        world.live(order.start_gap_ms)
    world.live(6_000)
    if order.death_gap_ms <= SIMULTANEOUS_MS:
        for key in world.leaderless():
            assert not world.whole_copies(key), f"{key} has no leader\n{world.describe()}"
    return world


@pytest.mark.parametrize("order", SAMPLE, ids=str)
def test_every_elected_broker_has_all_acknowledged_records(order: Order) -> None:
    play(order)


@pytest.mark.parametrize("order", ORDERS[7::211], ids=str)
def test_every_leader_has_all_records_if_one_of_two_directories_is_wiped(order: Order) -> None:
    play(order, directories=2)


def test_a_restored_disk_has_its_records() -> None:
    world = DataBrokers(1)
    for broker_id in BROKERS[:2]:
        world.kill(broker_id)
    world.live(1_000)
    last = world.brokers[BROKERS[2]]
    world.kill(last.id)
    disk = list(last.directories), dict(last.logs)
    world.wipe(last.id)
    for broker_id in BROKERS[:2]:
        world.start(broker_id)
    world.live(5_000)
    # The only complete copies are on the missing disk.
    assert {key for key in world.leaderless() if key[0] == "all"}
    last.directories, last.logs = disk
    world.start(last.id)
    world.live(5_000)
    assert not world.leaderless()
    shared = [key for key in world.acknowledged if key[0] == "all"]
    assert all(last.id in world.whole_copies(key) for key in shared)
