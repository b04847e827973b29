"""Periodic tasks of the active controller."""

from __future__ import annotations

import pytest

from barnabas.controller.controller import PeriodicTask, PeriodicTasks
from barnabas.sim.world import SimWorld


def test_a_task_that_raises_runs_again_after_its_period() -> None:
    world = SimWorld(1)
    runs: list[float] = []

    def run() -> bool:
        runs.append(world.scheduler.now_ms)
        if len(runs) == 1:
            raise MemoryError
        return False

    tasks = PeriodicTasks(world.host("node").runtime.timer, [PeriodicTask(100.0, run)])
    tasks.start()
    with pytest.raises(MemoryError):
        world.run_for(150)
    world.run_for(300)
    assert len(runs) >= 3
    assert runs[1] - runs[0] == runs[2] - runs[1]
