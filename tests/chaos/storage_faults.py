"""Faults of disks, files, descriptors, clocks and timers, and a hostile client."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from barnabas.testing.cluster_process import NodeProcess
from chaos.chaos_node import ChaosNode
from chaos.cluster_view import await_that
from chaos.damage import Flip, delete_replica, flip_any, repair, verify
from chaos.failing_node import TIMER, InjectedFaults
from chaos.faults import Fault, kill, let_pass
from chaos.hostile import TOPIC as HOSTILE_TOPIC
from chaos.stress import HEAL_TIMEOUT_S, TOPIC, Stress

TESTS = Path(__file__).resolve().parents[1]
# Failing calls with their error.
FAILURES = (
    (("write",), "ENOSPC"),
    (("write",), "EIO"),
    (("sync",), "EIO"),
    (("rename",), "EIO"),
    (("open",), "EIO"),
    (("read",), "EIO"),
    (("write", "sync", "rename", "open"), "ENOSPC"),
)
# Files whose calls fail: of the load, of the metadata, of the offsets, or all.
PATHS = (TOPIC, "__cluster_metadata", "__consumer_offsets", "")
# Time (s) for a node with a failed directory to end by itself. Then it is killed.
END_TIMEOUT_S = 5.0
DAY_MS = 24 * 3_600_000
# Jumps of a clock. After a larger jump back, records would be more than an hour in the future,
# and `message.timestamp.after.max.ms` would reject them.
JUMPS_MS = (8 * DAY_MS, 400 * DAY_MS, 40 * 60_000, -30 * 60_000)
# Numbers of descriptors below the number of open files.
SHORT_BY = (0, 5, 20)
HOSTILE_S = 8.0
# Standard streams that a broker is started without.
CLOSED_STREAMS = ((0,), (2,), (0, 2))


def wipe_one_of_all(stress: Stress) -> str:
    """Kill all nodes by SIGKILL, delete one directory, and restart all in a random order."""
    nodes = list(stress.cluster.nodes.values())
    stress.rng.shuffle(nodes)
    description = kill(stress, nodes)
    wiped = stress.any_broker()
    wiped.wipe()
    for node in nodes:
        node.launch()
        time.sleep(stress.rng.choice((0.0, 0.0, 0.5, 2.0)))
    for node in nodes:
        node.await_ready()
    return f"{description} killed and started in this order, {wiped.node_id} without its directory"


def flip_a_bit(stress: Stress) -> str:
    """Kill a broker, and flip a bit of one of its files."""
    node = stress.any_broker()
    kill(stress, [node])
    flip = flip_any(node.data_directory, TOPIC, stress.rng)
    stress.may_refuse.add(node.node_id)
    stress.after_healing.append(lambda: _settle_flip(stress, node, flip))
    return f"node {node.node_id}: {flip}"


def _settle_flip(stress: Stress, node: NodeProcess, flip: Flip) -> str:
    """Repair the remaining damage as an operator does."""
    found = verify(node.data_directory)
    if not found:
        return "no damage left"
    is_of_topic = flip.path.parent.name.startswith(TOPIC)
    deletes = is_of_topic and stress.rng.random() < 0.5
    stress.may_end.add(node.node_id)
    node.kill()
    if deletes:
        delete_replica(flip)
    else:
        repair(node.data_directory)
    # The start rebuilds indexes that the repair has renamed.
    stress.heal()
    stress.await_full_isr()
    left = verify(node.data_directory)
    assert not left, f"{flip}: {found}\nafter the repair:\n{left}"
    return "replica deleted and fetched again" if deletes else "repaired by `barnabas log repair`"


def fail_calls(stress: Stress) -> str:
    """Let system calls of a leader fail for some time."""
    node = _chaos_node(stress)
    calls, error = stress.rng.choice(FAILURES)
    share, paths = stress.rng.choice((1.0, 0.3)), stress.rng.choice(PATHS)
    before = len(node.failed_calls())
    stress.may_end.add(node.node_id)
    node.set_faults(InjectedFaults(calls, error, share, paths, seed=stress.rng.randrange(1 << 30)))
    let_pass(stress, 1 + 2 * stress.rng.random())
    node.clear_faults()
    failed = len(node.failed_calls()) - before
    what = f"node {node.node_id}: {error} of {'+'.join(calls)} in '{paths}', {failed} failed"
    if not failed:
        return what
    try:
        await_that(lambda: node.is_running, lambda alive: not alive, END_TIMEOUT_S, "its end")
    except AssertionError:
        # An operator restarts the node after a failure of the disk.
        node.kill()
        return f"{what}, killed"
    return f"{what}, ended"


def exhaust_descriptors(stress: Stress) -> str:
    """Lower the open file limit of a leader below its number of open files for some time."""
    node = _chaos_node(stress)
    before = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    limit = max(16, node.open_descriptors() - stress.rng.choice(SHORT_BY))
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    let_pass(stress, 2 + 3 * stress.rng.random())
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, before)
    return f"node {node.node_id}: {limit} for a while"


def fail_to_open(stress: Stress) -> str:
    """Let a leader's attempts to open files fail with EMFILE for some time."""
    node = _chaos_node(stress)
    before = len(node.failed_calls())
    injected = InjectedFaults(
        ("open",), "EMFILE", stress.rng.choice((1.0, 0.3)), "", stress.rng.randrange(99)
    )
    node.set_faults(injected)
    let_pass(stress, 2 + 3 * stress.rng.random())
    node.clear_faults()
    return f"node {node.node_id}: {len(node.failed_calls()) - before} failed"


def shift_clock(stress: Stress) -> str:
    """Shift the wall clock of one broker or of all brokers until the cluster is healed."""
    nodes = [_chaos_node(stress)] if stress.rng.random() < 0.5 else _chaos_nodes(stress)
    ahead_ms = stress.rng.choice(JUMPS_MS)
    for node in nodes:
        node.set_faults(InjectedFaults(clock_ahead_ms=ahead_ms))
        stress.undo.append(node.clear_faults)
    let_pass(stress, 2.0)
    return f"node {', '.join(str(each.node_id) for each in nodes)} by {ahead_ms / 3_600_000:g} h"


def fail_timers(stress: Stress) -> str:
    """Let the timers of all coordinators raise for some time: they must run again later."""
    before = sum(len(node.failed_calls()) for node in _chaos_nodes(stress))
    share = stress.rng.choice((1.0, 0.5))
    for node in _chaos_nodes(stress):
        node.set_faults(InjectedFaults((TIMER,), share=share, seed=stress.rng.randrange(99)))
    let_pass(stress, 2 + 4 * stress.rng.random())
    for node in _chaos_nodes(stress):
        node.clear_faults()
    failed = sum(len(node.failed_calls()) for node in _chaos_nodes(stress)) - before
    return f"{failed} timers of all nodes"


def close_streams(stress: Stress) -> str:
    """Start a broker without some of its standard streams, and stop it cleanly."""
    node = _chaos_node(stress)
    stress.may_end.add(node.node_id)
    node.stop()
    node.closed_streams = stress.rng.choice(CLOSED_STREAMS)
    what = f"node {node.node_id} without the streams {node.closed_streams}"
    node.start()
    stress.await_full_isr()
    node_status = node.stop()
    node.closed_streams = ()
    assert node_status == 0, f"{what} ended with status {node_status}"
    return what


def attack(stress: Stress) -> str:
    """Send costly batches and very large requests to a leader by a hostile client."""
    hostile = await_that(
        lambda: stress.view.partition(HOSTILE_TOPIC), bool, HEAL_TIMEOUT_S, "the hostile topic"
    )
    node = stress.cluster.node(hostile.leader)
    words = [
        sys.executable,
        "-m",
        "chaos.hostile",
        node.address,
        str(stress.rng.randrange(1 << 30)),
    ]
    process = subprocess.Popen(words, cwd=TESTS, env=os.environ | {"PYTHONPATH": str(TESTS)})

    def end() -> None:
        process.kill()
        process.wait()

    stress.undo.append(end)
    let_pass(stress, HOSTILE_S)
    assert process.poll() is None, f"the hostile client ended: {process.returncode}"
    return f"node {node.node_id}"


def _chaos_node(stress: Stress) -> ChaosNode:
    node = stress.leader()
    assert isinstance(node, ChaosNode)
    return node


def _chaos_nodes(stress: Stress) -> list[ChaosNode]:
    return [node for node in stress.cluster.nodes.values() if isinstance(node, ChaosNode)]


STORAGE_FAULTS = (
    Fault("kill -9 of all, one directory lost", wipe_one_of_all, weight=2),
    Fault(
        "kill -9 and a flipped bit",
        flip_a_bit,
        needs_injection=True,
        damages_segments=True,
        weight=4,
    ),
    Fault("failing calls", fail_calls, needs_injection=True, weight=4),
    Fault("no descriptor for files", fail_to_open, needs_injection=True, weight=1),
    Fault("limit of open files lowered", exhaust_descriptors, needs_injection=True, weight=1),
    Fault("clock jump", shift_clock, needs_injection=True, moves_clocks=True),
    Fault("timers that raise", fail_timers, needs_injection=True, weight=2),
    Fault("closed standard streams", close_streams, needs_injection=True, weight=1),
    Fault("hostile client", attack, needs_injection=True, weight=2),
)
