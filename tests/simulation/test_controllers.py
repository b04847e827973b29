"""Three controllers in one simulated world: what they agree on holds, from seeds."""

from __future__ import annotations

import pytest

from simulation.controller_fate import ControllerFate


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_brokers_and_controllers_the_metadata_stays_right(seed: int) -> None:
    fate = ControllerFate(seed)
    fate.run(120)
    image = fate.settle()
    assert len(image.brokers) == 4
    assert fate.hosts.metadata.records
