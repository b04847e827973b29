"""Faults of the nodes of a `ClusterWorld`, and of the network between them."""

from __future__ import annotations

import random

from simulation.cluster_world import NODES, ClusterWorld


class ClusterFaults:
    """Faults of one world. `heal` ends them.

    Args:
        world: the world.
        rng: chooses nodes and durations.
        hold_ms: shortest and longest time for which a fault is held, in virtual ms.
    """

    def __init__(
        self, world: ClusterWorld, rng: random.Random, hold_ms: tuple[float, float]
    ) -> None:
        self._world = world
        self._network = world.cluster.world.network
        self._rng = rng
        self._hold_ms = hold_ms
        # When the last paused node continues, in virtual seconds.
        self.paused_until = 0.0

    def hold(self) -> None:
        """Advance time for the duration of a fault."""
        self._world.run_for(self._rng.uniform(*self._hold_ms))

    def heal(self) -> None:
        """Heal the network, start the killed nodes, and wait until they have caught up."""
        self._network.heal()
        for node in NODES:
            if node not in self._world.cluster.ready:
                self._world.cluster.launch(node)
        self._world.await_full_isr()

    def end(self) -> None:
        """Wait for paused nodes, and heal."""
        # After a pause, a node acts as a leader until it learns of its successor.
        self._world.run_for(max(0.0, self.paused_until - self._world.now) * 1000 + 500)
        self.heal()

    def kill(self, node: int) -> None:
        """Kill a node, and hold."""
        self._world.cluster.kill(node)
        self.hold()

    def lose_power(self, *nodes: int) -> None:
        """Kill nodes, whose disks lose what is not synced, and hold."""
        for node in nodes:
            self._world.cluster.kill(node)
            self._world.cluster.world.host(f"node-{node}").lose_power()
        self.hold()

    def cut_link(self) -> None:
        """Cut the link between two nodes."""
        one, other = self._rng.sample(NODES, 2)
        self._network.partition(f"node-{one}", f"node-{other}")

    def isolate(self, node: int) -> None:
        """Cut the links of a node to all other nodes."""
        for other in NODES:
            if other != node:
                self._network.partition(f"node-{node}", f"node-{other}")

    def pause(self, node: int, duration_ms: float) -> None:
        """Pause the process of a node."""
        self.paused_until = self._world.now + duration_ms / 1000
        self._world.cluster.world.host(f"node-{node}").timer.pause(duration_ms)

    def reset_link(self) -> None:
        """Reset the connections between two nodes."""
        one, other = self._rng.sample(NODES, 2)
        self._network.reset_connections(f"node-{one}", f"node-{other}")

    def reset_client(self, host: str) -> None:
        """Reset the connections of a client to all nodes."""
        for node in NODES:
            self._network.reset_connections(host, f"node-{node}")
