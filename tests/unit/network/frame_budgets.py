"""Budgets of memory for frames, and a connection that holds frames."""

from __future__ import annotations

from barnabas.network.connection_limits import FrameBudget
from barnabas.sim.world import SimWorld, sim_runtime

MEGABYTE = 1 << 20


class Holder:
    """A connection that is told to wait, to resume, or to close."""

    def __init__(self, budget: FrameBudget, whole: int) -> None:
        self.budget = budget
        self.whole = whole
        self.held = 0
        self.is_waiting = False
        self.dropped = ""

    @property
    def missing_frame_bytes(self) -> int:
        return self.whole - self.held

    def await_frame_memory(self) -> None:
        self.is_waiting = True

    def resume_frame(self) -> None:
        assert self.is_waiting
        self.is_waiting = False

    def drop_frame(self, reason: str) -> None:
        self.dropped = reason

    def grow(self, held: int) -> None:
        self.held = held
        self.budget.hold(self, held)

    def finish(self) -> None:
        assert not self.is_waiting
        self.held = 0
        self.budget.hold(self, 0)


def budget_of(megabytes: int) -> tuple[SimWorld, FrameBudget]:
    world, runtime = sim_runtime(1)
    return world, FrameBudget(megabytes * MEGABYTE, runtime.clock, runtime.timer)
