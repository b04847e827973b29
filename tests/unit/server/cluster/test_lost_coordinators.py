"""FindCoordinator after the death of a coordinator's broker, in virtual time."""

from __future__ import annotations

from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from unit.server.simulated_cluster import SimulatedCluster, three_nodes


def coordinator_of(cluster: SimulatedCluster, asked: int, group: str) -> int:
    response = cluster.ask(asked, FindCoordinatorRequest(coordinator_keys=[group]), 4)
    (found,) = response.coordinators
    return int(found.node_id)


def test_requests_for_a_coordinator_wait_for_the_election_after_it_died() -> None:
    cluster = three_nodes()
    asked = cluster.active
    dead = next(node_id for node_id in (1, 2, 3) if node_id != asked)
    names = [f"group-{number}" for number in range(20)]
    cluster.until(lambda: coordinator_of(cluster, asked, names[0]) > 0)
    cluster.world.run_for(1_000)
    group = next(each for each in names if coordinator_of(cluster, asked, each) == dead)
    cluster.kill(dead)
    cluster.world.run_for(10)
    assert dead in cluster.live_brokers(asked)
    assert coordinator_of(cluster, asked, group) in {1, 2, 3} - {dead}
