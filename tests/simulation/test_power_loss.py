"""Some seeds of the power loss walk; `make power-loss SEEDS=...` runs thousands."""

from __future__ import annotations

import pytest

from simulation.power_loss import run

# Seeds of fixed bugs: torn and zeroed indexes of a segment that was just sealed (42, 786, 850),
# checkpoints of a deleted topic applied to a new topic of its name (134, 235), zeros read as the
# old message format (616), recovered data that was not synced (343), a deleted log that reappeared
# (70), files that a sync in progress included (513); and in the simulated disk, a directory that
# was renamed over another (1393).
FIXED_SEEDS = (42, 70, 134, 235, 343, 513, 616, 786, 850, 1393)
FRESH = tuple(range(1, 13))


@pytest.mark.parametrize("seed", [*FIXED_SEEDS, *FRESH])
def test_no_acknowledged_synced_record_is_lost(seed: int) -> None:
    assert run(seed)["topics"] >= 3
