"""Random schedules of three brokers keep the invariants of replication."""

from __future__ import annotations

import pytest

from property.replication_schedule import live
from selection import nightly_unless

SEEDS_PER_TEST = 25


@pytest.mark.parametrize(
    "first", nightly_unless(range(75).__contains__, range(0, 200, SEEDS_PER_TEST))
)
def test_replicas_agree_and_keep_committed_records_under_random_failures(first: int) -> None:
    lives = [live(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert sum(len(life.acknowledged) for life in lives) > SEEDS_PER_TEST, "nothing was proved"
