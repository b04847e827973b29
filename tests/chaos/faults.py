"""The faults of a campaign: each is a function that causes it and returns its target.

After it, and once the load goes on, `Stress.heal` puts everything right again.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.testing.node_process import NodeProcess
from chaos.cluster_view import await_that
from chaos.small_disk import limit_file_sizes
from chaos.stress import HEAL_TIMEOUT_S, TOPIC, Stress


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    name: str
    # Does it; returns what was done, in words.
    do: Callable[[Stress], str]
    needs_relays: bool = False
    # Nodes must be `ChaosNode`, not Apache Kafka.
    needs_doors: bool = False
    # All listeners have TLS.
    needs_tls: bool = False
    # How often it is chosen, beside the others.
    weight: int = 1


def kill_leader(stress: Stress) -> str:
    """kill -9 of a leader."""
    return kill(stress, [stress.leader()])


def kill_controller(stress: Stress) -> str:
    """kill -9 of the active controller."""
    return kill(stress, [stress.controller()])


def kill_all(stress: Stress) -> str:
    """kill -9 of all nodes, which restart at the same time."""
    told = kill(stress, list(stress.cluster.nodes.values()))
    stress.heal()
    return told


def stop_leader(stress: Stress) -> str:
    """A clean stop of a leader."""
    node = stress.leader()
    stress.may_end.add(node.node_id)
    node.stop()
    return f"node {node.node_id}"


def pause_leader(stress: Stress) -> str:
    """A leader is paused for longer than its session."""
    node = stress.leader()
    node.pause()
    return f"node {node.node_id}"


def pause_leader_briefly(stress: Stress) -> str:
    """A leader is paused for half a second."""
    node = stress.leader()
    node.pause()
    let_pass(stress, 0.5)
    node.resume()
    return f"node {node.node_id}"


def cut_followers(stress: Stress) -> str:
    """The link from a leader to another broker is cut; both reach the controllers."""
    assert stress.relays is not None
    node = stress.leader()
    others = [each for each in stress.cluster.brokers if each is not node]
    controller = stress.controller().node_id
    other = next((each for each in others if each.node_id != controller), others[0])
    stress.relays.cut(node.node_id, other.node_id)
    return f"{node.node_id} - {other.node_id}"


def isolate_leader(stress: Stress) -> str:
    """A leader is isolated from all nodes; clients reach it."""
    assert stress.relays is not None
    node = stress.leader()
    stress.relays.isolate(node.node_id, stress.cluster.nodes)
    return f"node {node.node_id}"


def stall_leader(stress: Stress) -> str:
    """No bytes pass between a leader and all nodes; connections stay open."""
    assert stress.relays is not None
    node = stress.leader()
    stress.relays.isolate(node.node_id, stress.cluster.nodes, stalled=True)
    return f"node {node.node_id}"


def isolate_controller(stress: Stress) -> str:
    """The active controller is isolated from all nodes."""
    assert stress.relays is not None
    node = stress.controller()
    stress.relays.isolate(node.node_id, stress.cluster.nodes)
    return f"node {node.node_id}"


def delay_link(stress: Stress) -> str:
    """A link of a leader becomes slow."""
    assert stress.relays is not None
    node = stress.leader()
    other = stress.rng.choice([n for n in stress.cluster.nodes if n != node.node_id])
    delay_ms = stress.rng.randint(20, 200)
    stress.relays.delay(node.node_id, other, delay_ms)
    return f"{node.node_id} - {other} by {delay_ms} ms"


def fill_disk(stress: Stress) -> str:
    """A broker's files cannot grow: it has no other directory, and stops."""
    node = stress.leader()
    stress.may_end.add(node.node_id)
    limit_file_sizes(node, TOPIC)
    await_that(lambda: node.is_running, lambda alive: not alive, HEAL_TIMEOUT_S, "its end")
    return f"node {node.node_id}"


def wipe_broker(stress: Stress) -> str:
    """A broker dies, and its directory is deleted."""
    node = stress.any_broker()
    told = kill(stress, [node])
    node.wipe()
    return told


FAULTS = (
    Fault("kill -9 of a leader", kill_leader, weight=4),
    Fault("kill -9 of the active controller", kill_controller, weight=4),
    Fault("kill -9 of all", kill_all),
    Fault("clean stop of a leader", stop_leader, weight=2),
    Fault("SIGSTOP of a leader", pause_leader, weight=2),
    Fault("SIGSTOP for 0.5 s", pause_leader_briefly, weight=2),
    Fault("link to a follower cut", cut_followers, needs_relays=True, weight=2),
    Fault("leader cut off", isolate_leader, needs_relays=True, weight=2),
    Fault("leader cut off silently", stall_leader, needs_relays=True, weight=2),
    Fault("controller cut off", isolate_controller, needs_relays=True, weight=2),
    Fault("slow link", delay_link, needs_relays=True, weight=2),
    Fault("full disk", fill_disk),
    Fault("directory lost", wipe_broker),
)


def kill(stress: Stress, nodes: list[NodeProcess]) -> str:
    """Kill nodes by SIGKILL, all at once; returns which."""
    stress.may_end.update(node.node_id for node in nodes)
    for node in nodes:
        with contextlib.suppress(ProcessLookupError):
            # All at once, and then wait for each.
            os.kill(node.pid, 9)
    for node in nodes:
        node.kill()
    return "node " + ", ".join(str(node.node_id) for node in nodes)


def let_pass(stress: Stress, seconds: float) -> None:
    """Wait under load; the fault lasts for this time."""
    time.sleep(seconds)
    stress.load.check_alive()
