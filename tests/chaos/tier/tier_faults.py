"""Faults of a campaign's remote store, and kills at the steps of copies and deletions."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from chaos.chaos_node import ChaosNode
from chaos.cluster_view import await_that
from chaos.failing_node import STORE_CALLS, InjectedFaults
from chaos.faults import Fault, let_pass
from chaos.load import plain_consumer
from chaos.stress import HEAL_TIMEOUT_S, TOPIC, Stress
from chaos.tier.tier_loads import ExpiringLoad

if TYPE_CHECKING:
    from chaos.tier.tier_store import ChaosTier, StoredSegment

WRITES = ("store.put_file", "store.put", "store.delete")
# How long a fault of the store lasts at least.
HOLD_S = (1.0, 6.0)
# Late calls of a slow store.
DELAYS_MS = (200, 1_000, 4_000)
# Time in which a broker copies, or deletes, a segment. Otherwise the fault does not happen.
STEP_TIMEOUT_S = 30.0
# How long a reader tries to read from a segment without its object.
READ_S = 3.0
# The calls of a copy and of a deletion, in their order, and the ends of their paths.
COPY_STEPS = (
    ("store.put_file", r"\.log$"),
    ("store.put", r"\.indexes$"),
    ("store.put", r"\.json$"),
)
DELETE_STEPS = (("store.delete", r"\.json$"), ("store.delete", r"\.log$"))


def _hold(stress: Stress, faults: InjectedFaults) -> str:
    """Let all brokers have faults of the store until the cluster is healed."""
    for node in _chaos_nodes(stress):
        node.set_faults(faults)
        stress.undo.append(node.clear_faults)
    let_pass(stress, stress.rng.uniform(*HOLD_S))
    return f"{faults.error} of {len(faults.calls)} kinds of calls, share {faults.share:g}"


def refuse(stress: Stress) -> str:
    """Let the store refuse all calls, as without rights."""
    return _hold(stress, InjectedFaults(STORE_CALLS, "EACCES"))


def forbid_writes(stress: Stress) -> str:
    """Let the store accept no changes; it can be read."""
    return _hold(stress, InjectedFaults(WRITES, "EROFS"))


def fill_store(stress: Stress) -> str:
    """Let the store have no space; segments can be read and deleted."""
    return _hold(stress, InjectedFaults(("store.put_file", "store.put"), "ENOSPC"))


def fail_some_calls(stress: Stress) -> str:
    """Let a third of the calls of the store fail."""
    seed = stress.rng.randrange(1 << 30)
    return _hold(stress, InjectedFaults(STORE_CALLS, "EIO", 0.3, seed=seed))


def slow_down(stress: Stress) -> str:
    """Let half of the calls of the store be late."""
    delay_ms = stress.rng.choice(DELAYS_MS)
    seed = stress.rng.randrange(1 << 30)
    _hold(stress, InjectedFaults(STORE_CALLS, share=0.5, seed=seed, delay_ms=delay_ms))
    return f"half of the calls by {delay_ms} ms"


def stop_store(stress: Stress) -> str:
    """Let no broker reach the store: its file system is unmounted, or its server is down."""
    store = _tier(stress).store
    store.stop()
    stress.undo.append(store.start)
    let_pass(stress, stress.rng.uniform(*HOLD_S))
    return "all brokers"


def lose_object(stress: Stress) -> str:
    """Take an object away that is the only copy of its records: reads fail, and skip nothing.

    Raises:
        AssertionError: a reader has got a later record than the next one.
    """
    tier = _tier(stress)
    choice = _only_copies(stress, tier)
    if not choice:
        return "no segment is only in the tier"
    segment = stress.rng.choice(choice)
    path = f"{segment.path}.{stress.rng.choice(('log', 'indexes'))}"
    content = tier.store.read(path)
    tier.store.remove(path)

    def bring_back() -> None:
        # A leader that checks its copies again has perhaps replaced the segment.
        if f"{segment.path}.json" in tier.store.objects():
            tier.store.put(path, content)

    stress.undo.append(bring_back)
    read = _read_from(stress, segment, READ_S)
    expected = list(range(segment.start_offset, segment.start_offset + len(read)))
    assert read == expected, f"{path} is lost, and a reader has skipped offsets: {read[:20]}"

    def is_read_again() -> str:
        found = await_that(
            lambda: _read_from(stress, segment, READ_S), bool, HEAL_TIMEOUT_S, f"records of {path}"
        )
        assert found[0] == segment.start_offset, (path, found[0])
        return "then read again"

    stress.after_healing.append(is_read_again)
    return f"{path.rpartition('/')[2]}, {len(read)} records were read meanwhile"


def kill_in_copy(stress: Stress) -> str:
    """Kill a leader at a step of a copy."""
    return _kill_in(stress, TOPIC, COPY_STEPS)


def kill_in_deletion(stress: Stress) -> str:
    """Kill a leader at a step of the deletion of a segment."""
    return _kill_in(stress, ExpiringLoad.TOPIC, DELETE_STEPS)


def _kill_in(stress: Stress, topic: str, steps: tuple[tuple[str, str], ...]) -> str:
    found = await_that(lambda: stress.view.partitions(topic), bool, HEAL_TIMEOUT_S, topic)
    node = stress.cluster.node(stress.rng.choice(list(found.values())).leader)
    assert isinstance(node, ChaosNode)
    call, paths = stress.rng.choice(steps)
    when = stress.rng.choice(("before", "after"))
    stress.may_end.add(node.node_id)
    node.set_faults(InjectedFaults((call,), paths=paths, kills=when))
    what = f"node {node.node_id} {when} {call} of {paths.strip('$')}"
    try:
        await_that(lambda: node.is_running, lambda alive: not alive, STEP_TIMEOUT_S, "its end")
    except AssertionError:
        return f"{what}, which it did not reach"
    finally:
        node.clear_faults()
    return what


def _only_copies(stress: Stress, tier: ChaosTier) -> list[StoredSegment]:
    """Return segments of the load that no broker has on its disk."""
    by_partition: dict[int, list[StoredSegment]] = {}
    for segment in tier.stored():
        if segment.topic == TOPIC:
            by_partition.setdefault(segment.partition, []).append(segment)
    found = []
    for partition, segments in by_partition.items():
        first = min(
            (
                int(path.stem)
                for node in stress.cluster.brokers
                for path in Path(node.data_directory).glob(f"{TOPIC}-{partition}/*.log")
            ),
            default=0,
        )
        # A segment ends where the next one begins.
        found += [
            segment
            for segment, following in pairwise(segments)
            if segment.start_offset < following.start_offset <= first
        ]
    return found


def _read_from(stress: Stress, segment: StoredSegment, seconds: float) -> list[int]:
    """Return the offsets of the records that a consumer gets from the start of a segment on."""
    consumer = plain_consumer(stress.cluster.bootstrap, "reads-lost", stress.load.options.keys)
    consumer.assign([TopicPartition(TOPIC, segment.partition, segment.start_offset)])
    offsets: list[int] = []
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline and len(offsets) < 1000:
            messages = consumer.consume(100, 0.2)
            offsets += [each.offset() for each in messages if each.error() is None]
    finally:
        consumer.close()
    return offsets


def _tier(stress: Stress) -> ChaosTier:
    assert stress.tier is not None, "the topics have no tier"
    return stress.tier


def _chaos_nodes(stress: Stress) -> list[ChaosNode]:
    return [node for node in stress.cluster.nodes.values() if isinstance(node, ChaosNode)]


TIER_FAULTS = (
    Fault("store refuses", refuse, needs_tier=True),
    Fault("store read-only", forbid_writes, needs_tier=True),
    Fault("store full", fill_store, needs_tier=True),
    Fault("store fails at times", fail_some_calls, needs_tier=True, weight=2),
    Fault("store slow", slow_down, needs_tier=True, weight=2),
    Fault("store stopped", stop_store, needs_tier=True, weight=2),
    Fault("object lost", lose_object, needs_tier=True, weight=3),
    Fault("kill -9 in a copy", kill_in_copy, needs_tier=True, weight=4),
    Fault("kill -9 in a deletion", kill_in_deletion, needs_tier=True, weight=4),
)
