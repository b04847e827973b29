"""All orders of deaths, wipes, starts: `python -m simulation.wiped_orders [EVERY]`, from `tests`.

Prints each failing order with its error, and at the end the number of orders. With EVERY, only each
order at a multiple of this number is played.
"""

from __future__ import annotations

import logging
import sys

from simulation.test_wiped_brokers import ORDERS, play


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
