"""All orders of deaths, wipes, starts: `python -m simulation.wiped_orders [EVERY]`, from `tests`.

Prints each failing order with its error, and at the end the number of orders. With EVERY, only each
order at a multiple of this number is played.
"""

from __future__ import annotations

import logging
import sys
from itertools import combinations, permutations, product
from typing import NamedTuple

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


def main(every: int) -> int:
    logging.disable(logging.WARNING)
    orders = ORDERS[::every]
    failed = 0
    for order in orders:
        for directories in (1, 2):
            try:
                play(order, directories)
            except AssertionError as error:
                failed += 1
                print(f"{order} with {directories} directories: {error}\n", flush=True)
    print(f"{2 * len(orders)} plays, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
