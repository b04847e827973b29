"""Brokers die together or one by one, lose their disks and restart, in every order.

An elected broker always has all acknowledged records. If all brokers died at once and one kept its
disk, every partition gets a leader again.
"""

from __future__ import annotations

import pytest

from selection import nightly_unless
from simulation.data_brokers import BROKERS, DataBrokers
from simulation.wiped_orders import ORDERS, Order, play

# A fixed sample; `python -m simulation.wiped_orders`, from `tests`, plays all of them.
SAMPLE = ORDERS[::61]
# What `make check` plays of them.
CHOSEN = set(SAMPLE[::3])


@pytest.mark.parametrize("order", nightly_unless(CHOSEN.__contains__, SAMPLE), ids=str)
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
