"""Give a dead simulated node an empty disk."""

from __future__ import annotations

from unit.server.simulated_cluster import SimulatedCluster


def wipe(cluster: SimulatedCluster, node_id: int) -> None:
    """Replace the disk of a dead node with an empty one."""
    disk = cluster.world.host(f"node-{node_id}").disk
    disk.remove_tree("/data")
    disk.sync_directory("/")
