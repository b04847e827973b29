"""The faults of a campaign. Each is a function that causes the fault and returns its target.

Once the load continues, `Stress.heal` ends the fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.testing.cluster_process import NodeProcess
from chaos.cluster_view import await_that
from chaos.small_disk import limit_file_sizes
from chaos.stress import HEAL_TIMEOUT_S, TOPIC, Stress
from chaos.supervised_nodes import ClusterOfNodes
from chaos.transactional_load import GROUP as PROCESSORS
from machines import ClusterOnMachines

# Longest time in which a coordinator that is cut off may have a successor.
TWO_COORDINATORS_S = 6.0


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    name: str
    # Causes the fault, and returns a description.
    do: Callable[[Stress], str]
    needs_relays: bool = False
    # Nodes must be `ChaosNode`, not Apache Kafka.
    needs_injection: bool = False
    # All listeners have TLS.
    needs_tls: bool = False
    # Clocks jump, so offsets with a short retention do not expire in time.
    moves_clocks: bool = False
    # The cluster is a `ClusterOnMachines`.
    needs_machines: bool = False
    # The cluster is a `ClusterOfNodes`.
    needs_supervisors: bool = False
    # The topics of the loads have a remote tier.
    needs_tier: bool = False
    # Damages closed segments. A copy in the remote tier may have the damage then, as with Kafka.
    damages_segments: bool = False
    # Weight in the random choice of faults.
    weight: int = 1


def kill_leader(stress: Stress) -> str:
    """Kill a leader by SIGKILL."""
    return kill(stress, [stress.leader()])


def kill_controller(stress: Stress) -> str:
    """Kill the active controller by SIGKILL."""
    return kill(stress, [stress.controller()])


def kill_machine(stress: Stress) -> str:
    """Kill all brokers and controllers on a leader's machine by SIGKILL, at the same time."""
    cluster = stress.cluster
    assert isinstance(cluster, ClusterOnMachines)
    partitions, _ = stress.state()
    for number, view in partitions.items():
        hosts = {cluster.host_of(replica) for replica in view.replicas}
        assert len(hosts) == len(view.replicas), f"partition {number}: {view.replicas} on {hosts}"
    host = cluster.host_of(stress.rng.choice(list(partitions.values())).leader)
    return f"{host}, {kill(stress, cluster.nodes_on(host))}"


def kill_supervisor(stress: Stress) -> str:
    """Kill the supervisor on a leader's machine by SIGKILL. Its processes end because of that."""
    cluster = stress.cluster
    assert isinstance(cluster, ClusterOfNodes)
    node = cluster.supervisor_of(stress.leader().node_id)
    stress.may_end.add(node.node_id)
    node.kill_supervisor()
    return f"node {node.node_id}"


def kill_all(stress: Stress) -> str:
    """Kill all nodes by SIGKILL. They restart at the same time."""
    description = kill(stress, list(stress.cluster.nodes.values()))
    stress.heal()
    return description


def stop_leader(stress: Stress) -> str:
    """Stop a leader cleanly."""
    node = stress.leader()
    stress.may_end.add(node.node_id)
    node.stop()
    return f"node {node.node_id}"


def pause_leader(stress: Stress) -> str:
    """Pause a leader for longer than its session."""
    node = stress.leader()
    node.pause()
    return f"node {node.node_id}"


def pause_leader_briefly(stress: Stress) -> str:
    """Pause a leader for half a second."""
    node = stress.leader()
    node.pause()
    let_pass(stress, 0.5)
    node.resume()
    return f"node {node.node_id}"


def cut_followers(stress: Stress) -> str:
    """Cut the link from a leader to another broker. Both reach the controllers."""
    assert stress.relays is not None
    node = stress.leader()
    others = [each for each in stress.cluster.brokers if each is not node]
    controller = stress.controller().node_id
    other = next((each for each in others if each.node_id != controller), others[0])
    stress.relays.cut(node.node_id, other.node_id)
    return f"{node.node_id} - {other.node_id}"


def isolate_leader(stress: Stress) -> str:
    """Isolate a leader from all nodes. Clients reach it."""
    assert stress.relays is not None
    node = stress.leader()
    stress.relays.isolate(node.node_id, stress.cluster.nodes)
    return f"node {node.node_id}"


def isolate_coordinator(stress: Stress) -> str:
    """Isolate the coordinator of a group from all nodes. Clients reach it, and may prefer it.

    Apache Kafka's coordinator then returns offsets that are out of date, and input is processed
    twice.
    """
    assert stress.relays is not None
    group = stress.load.options.group if stress.transactional is None else PROCESSORS
    node = stress.cluster.node(stress.view.coordinator(group))
    stress.relays.isolate(node.node_id, stress.cluster.nodes)
    # Longer than an election takes, so that there are two coordinators.
    let_pass(stress, stress.rng.random() * TWO_COORDINATORS_S)
    return f"node {node.node_id}"


def stall_leader(stress: Stress) -> str:
    """Drop all bytes between a leader and the other nodes. Connections stay open."""
    assert stress.relays is not None
    node = stress.leader()
    stress.relays.isolate(node.node_id, stress.cluster.nodes, stalled=True)
    return f"node {node.node_id}"


def isolate_controller(stress: Stress) -> str:
    """Isolate the active controller from all nodes."""
    assert stress.relays is not None
    node = stress.controller()
    stress.relays.isolate(node.node_id, stress.cluster.nodes)
    return f"node {node.node_id}"


def delay_link(stress: Stress) -> str:
    """Delay the bytes of a link of a leader."""
    assert stress.relays is not None
    node = stress.leader()
    other = stress.rng.choice([n for n in stress.cluster.nodes if n != node.node_id])
    delay_ms = stress.rng.randint(20, 200)
    stress.relays.delay(node.node_id, other, delay_ms)
    return f"{node.node_id} - {other} by {delay_ms} ms"


def fill_disk(stress: Stress) -> str:
    """Prevent the files of a broker from growing. It has no other directory, so it stops."""
    node = stress.leader()
    stress.may_end.add(node.node_id)
    limit_file_sizes(node, TOPIC)
    await_that(lambda: node.is_running, lambda alive: not alive, HEAL_TIMEOUT_S, "its end")
    return f"node {node.node_id}"


def wipe_broker(stress: Stress) -> str:
    """Kill a broker, and delete its directory."""
    node = stress.any_broker()
    description = kill(stress, [node])
    node.wipe()
    return description


FAULTS = (
    Fault("kill -9 of a leader", kill_leader, weight=4),
    Fault("kill -9 of the active controller", kill_controller, weight=4),
    Fault("kill -9 of a machine", kill_machine, needs_machines=True, weight=4),
    Fault("kill -9 of a supervisor", kill_supervisor, needs_supervisors=True, weight=2),
    Fault("kill -9 of all", kill_all),
    Fault("clean stop of a leader", stop_leader, weight=2),
    Fault("SIGSTOP of a leader", pause_leader, weight=2),
    Fault("SIGSTOP for 0.5 s", pause_leader_briefly, weight=2),
    Fault("link to a follower cut", cut_followers, needs_relays=True, weight=2),
    Fault("leader cut off", isolate_leader, needs_relays=True, weight=2),
    Fault(
        "group coordinator cut off",
        isolate_coordinator,
        needs_relays=True,
        needs_injection=True,
        weight=2,
    ),
    Fault("leader cut off silently", stall_leader, needs_relays=True, weight=2),
    Fault("controller cut off", isolate_controller, needs_relays=True, weight=2),
    Fault("slow link", delay_link, needs_relays=True, weight=2),
    Fault("full disk", fill_disk),
    Fault("directory lost", wipe_broker),
)


def kill(stress: Stress, nodes: list[NodeProcess]) -> str:
    """Kill nodes by SIGKILL at the same time. Return their ids as text."""
    stress.may_end.update(node.node_id for node in nodes)
    # Kill all of them first, then wait for each.
    for node in nodes:
        node.send_kill()
    for node in nodes:
        node.kill()
    return "node " + ", ".join(str(node.node_id) for node in nodes)


def let_pass(stress: Stress, seconds: float) -> None:
    """Wait under load for the duration of the fault."""
    time.sleep(seconds)
    stress.load.check_alive()
