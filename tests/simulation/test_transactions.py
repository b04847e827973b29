"""Transactional clients of three simulated brokers, under faults from seeds.

`python -m simulation.transactions.walk 1 1000 mixed`, from `tests`, plays more of them.
"""

from __future__ import annotations

import pytest

from chaos.transactional.history import Result
from selection import nightly_unless
from simulation.transactions.styles import STYLES
from simulation.transactions.walk import Walk

SECONDS = 6.0
# The styles that `make check` plays beside those of `chaos/test_weakened_transactions.py`.
CHOSEN = {"everything", "old", "adding", "kills"}


@pytest.mark.parametrize("style", nightly_unless(CHOSEN.__contains__, STYLES))
def test_transactions_stay_atomic_under_faults(style: str) -> None:
    walk = Walk(101, STYLES[style])
    verdict = walk.play(SECONDS)
    assert verdict.is_clean, f"{verdict}\n{walk.log}"
    transactions = walk.world.history.transactions.values()
    results = [each.result for each in transactions]
    assert results.count(Result.COMMITTED) > 4
    assert results.count(Result.ABORTED) > 0
    assert walk.log


def test_a_walk_is_the_same_each_time() -> None:
    histories = []
    for _ in range(2):
        walk = Walk(102)
        walk.play(3.0)
        histories.append(walk.world.history)
    assert histories[0] == histories[1]


@pytest.mark.parametrize("seed", nightly_unless((103).__eq__, range(103, 105)))
def test_transactions_stay_atomic_over_power_losses_of_all_nodes(seed: int) -> None:
    """Batches are synced before they are acknowledged."""
    walk = Walk(seed, is_synced=True)
    verdict = walk.play(12.0)
    assert verdict.is_clean, f"{verdict}\n{walk.log}"
