"""Some seeds of the power loss walk; `make power-loss SEEDS=...` runs thousands."""

from __future__ import annotations

import pytest

from simulation.power_loss import run

# Each of these once broke something: torn and zeroed indexes of a segment just sealed (42, 786,
# 850), checkpoints of a deleted topic applied to its successor (134, 235), zeros taken for the old
# message format (616), what was recovered and not synced (343), a log deleted whole that came back
# and went again (70), files that a sync under way was to sync (513); and, in the simulated disk, a
# directory that took another's name (1393).
ONCE_BROKEN = (42, 70, 134, 235, 343, 513, 616, 786, 850, 1393)
FRESH = tuple(range(1, 13))


@pytest.mark.parametrize("seed", [*ONCE_BROKEN, *FRESH])
def test_no_acknowledged_synced_record_is_lost(seed: int) -> None:
    assert run(seed)["topics"] >= 3
