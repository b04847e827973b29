"""A simulated world: hosts with disks and clocks, and a network between them, from one seed."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from barnabas.runtime.loop import Runtime
from barnabas.runtime.offload import SlicedOffload
from barnabas.runtime.rng import SeededRng
from barnabas.sim.clock import SimClock, SimExecutor, SimScheduler, SimTimer
from barnabas.sim.disk import SimDisk
from barnabas.sim.network import SimNetwork, SimSockets
from barnabas.sim.worker_pool import SimWorkerPools

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT_MS = 60_000.0


class SimHost:
    """A machine. Its disk survives its processes; `runtime` belongs to the running process."""

    def __init__(self, world: SimWorld, name: str) -> None:
        self._world = world
        self.name = name
        # Each host and purpose has its own seed, so an additional draw does not affect others.
        self.rng = SeededRng(world.seed_for(f"host {name}"))
        self.clock = SimClock(world.scheduler)
        self.disk = SimDisk(self.clock, SeededRng(world.seed_for(f"disk {name}")))
        self._workers_rng = SeededRng(world.seed_for(f"workers {name}"))
        self.timer: SimTimer
        self.worker_pools: SimWorkerPools
        self.runtime: Runtime
        self.start()

    def start(self) -> Runtime:
        """Start a process, also after a kill or power loss. Return its runtime."""
        self.timer = SimTimer(self._world.scheduler)
        self._world.network.attach(self.name, self.timer)
        self.worker_pools = SimWorkerPools(self.timer, self._workers_rng)
        self.runtime = Runtime(
            clock=self.clock,
            timer=self.timer,
            executor=SimExecutor(self.timer, self.rng),
            rng=self.rng,
            disk=self.disk,
            sockets=SimSockets(self._world.network, self.timer, self.name),
            offload=SlicedOffload(self.disk, self.clock, self.timer),
            worker_pool=self.worker_pools,
        )
        return self.runtime

    def kill(self) -> None:
        """Kill the process (kill -9). Written data stays, and the kernel resets the connections."""
        self._stop(silent=False)
        self.disk.kill()

    def lose_power(self) -> None:
        """Cut the power. Unsynced data is lost, and connected peers receive no reset."""
        self._stop(silent=True)
        self.disk.crash()

    def _stop(self, *, silent: bool) -> None:
        self.timer.stop()
        self._world.network.detach(self.name, silent=silent)


class SimWorld:
    """The hosts of a simulation, by name, in one virtual time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.scheduler = SimScheduler()
        self.network = SimNetwork(self.scheduler, SeededRng(self.seed_for("network")))
        self.hosts: dict[str, SimHost] = {}

    def host(self, name: str) -> SimHost:
        """Return the host with that name; create it on the first call."""
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = SimHost(self, name)
        return found

    def run_for(self, duration_ms: float) -> None:
        """Advance virtual time by `duration_ms`."""
        self.scheduler.run_for(duration_ms)

    def run_until(self, predicate: Callable[[], bool], limit_ms: float = _LIMIT_MS) -> bool:
        """Advance virtual time until `predicate()` holds.

        Return False if the limit passes first.
        """
        return self.scheduler.run_until(predicate, limit_ms)

    def seed_for(self, purpose: str) -> int:
        """Return a separate seed for each purpose.

        Python's `hash` is not used, because it differs between processes.
        """
        return self.seed << 32 | zlib.crc32(purpose.encode())


def sim_runtime(seed: int, name: str = "host") -> tuple[SimWorld, Runtime]:
    """Return a world with one host, and the runtime of that host."""
    world = SimWorld(seed)
    return world, world.host(name).runtime
