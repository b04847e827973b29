"""A simulated world: hosts with disks and clocks, a network between them, one seed for it all."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from barnabas.runtime.loop import Runtime
from barnabas.runtime.offload import SlicedOffload
from barnabas.runtime.rng import SeededRng
from barnabas.sim.clock import SimClock, SimTimer
from barnabas.sim.disk import SimDisk
from barnabas.sim.executor import SimExecutor
from barnabas.sim.network import SimNetwork, SimSockets
from barnabas.sim.scheduler import SimScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT_MS = 60_000.0


class SimHost:
    """A machine. Its disk outlives its processes; `runtime` is the running process's."""

    __slots__ = ("_world", "clock", "disk", "name", "rng", "runtime", "timer")

    def __init__(self, world: SimWorld, name: str) -> None:
        self._world = world
        self.name = name
        # A seed per host and purpose, so that one more draw here shifts nothing elsewhere.
        self.rng = SeededRng(world.seed_for(f"host {name}"))
        self.clock = SimClock(world.scheduler)
        self.disk = SimDisk(self.clock, SeededRng(world.seed_for(f"disk {name}")))
        self.timer: SimTimer
        self.runtime: Runtime
        self.start()

    def start(self) -> Runtime:
        """Start a process (again); returns its doors."""
        self.timer = SimTimer(self._world.scheduler)
        self._world.network.attach(self.name, self.timer)
        self.runtime = Runtime(
            clock=self.clock,
            timer=self.timer,
            executor=SimExecutor(self.timer, self.rng),
            rng=self.rng,
            disk=self.disk,
            sockets=SimSockets(self._world.network, self.timer, self.name),
            offload=SlicedOffload(self.disk, self.clock, self.timer),
        )
        return self.runtime

    def kill(self) -> None:
        """kill -9: files keep what was written, the kernel resets the connections."""
        self._stop(silent=False)
        self.disk.kill()

    def lose_power(self) -> None:
        """Files lose what was not synced; nobody is told."""
        self._stop(silent=True)
        self.disk.crash()

    def _stop(self, *, silent: bool) -> None:
        self.timer.stop()
        self._world.network.detach(self.name, silent=silent)


class SimWorld:
    """Hosts by name, in one virtual time."""

    __slots__ = ("hosts", "network", "scheduler", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.scheduler = SimScheduler()
        self.network = SimNetwork(self.scheduler, SeededRng(self.seed_for("network")))
        self.hosts: dict[str, SimHost] = {}

    def host(self, name: str) -> SimHost:
        """The host of that name, made at the first call."""
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = SimHost(self, name)
        return found

    def run_for(self, duration_ms: float) -> None:
        """Let virtual time pass."""
        self.scheduler.run_for(duration_ms)

    def run_until(self, predicate: Callable[[], bool], limit_ms: float = _LIMIT_MS) -> bool:
        """Let time pass until `predicate()` holds; False when it does not within the limit."""
        return self.scheduler.run_until(predicate, limit_ms)

    def seed_for(self, purpose: str) -> int:
        """A seed of its own for each purpose (not `hash`, which differs per process)."""
        return self.seed << 32 | zlib.crc32(purpose.encode())


def sim_runtime(seed: int, name: str = "host") -> tuple[SimWorld, Runtime]:
    """A world with one host, and its doors."""
    world = SimWorld(seed)
    return world, world.host(name).runtime
