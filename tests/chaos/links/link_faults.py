"""Faults of linked clusters: of nodes, of the connections between them, of the source's logs.

Each is a function that causes the fault and returns a description. `LinkStress.heal` ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka import Producer

from barnabas.client.topic_partition import TopicPartition
from chaos.cluster_view import await_that
from chaos.faults import FAULTS, kill
from chaos.links.link_stress import (
    COMPACTED,
    LINK,
    RETAINED,
    TRUNCATED,
    LinkStress,
    Side,
    await_ranges,
)
from chaos.load import QUICK, read_values
from chaos.stress import HEAL_TIMEOUT_S, Stress
from conformance.cli_shell import Shell
from waiting import eventually

# Longest time for which the connections between the clusters are cut, stalled or slow.
OUTAGE_S = 10.0
_NODE_FAULTS = (
    "kill -9 of a leader",
    "kill -9 of the active controller",
    "kill -9 of all",
    "clean stop of a leader",
    "SIGSTOP of a leader",
    "SIGSTOP for 0.5 s",
    "directory lost",
)
_VALUE = b"." * 10_000
_KEYS = 20


@dataclass(frozen=True)
class LinkFault:
    """A kind of fault."""

    name: str
    # Causes the fault, and returns a description.
    do: Callable[[LinkStress], str]
    weight: int = 1


def _node_faults() -> Iterator[LinkFault]:
    """Return the faults of nodes, for the cluster with the producers and that with the mirrors."""

    def at(
        side: Callable[[LinkStress], Side], do: Callable[[Stress], str]
    ) -> Callable[[LinkStress], str]:
        return lambda clusters: f"{side(clusters).name} cluster, {do(side(clusters).stress)}"

    for fault in FAULTS:
        if fault.name in _NODE_FAULTS:
            yield LinkFault(f"source: {fault.name}", at(lambda c: c.active, fault.do))
            yield LinkFault(f"mirrors: {fault.name}", at(lambda c: c.passive, fault.do))


def kill_leaders_of_both(clusters: LinkStress) -> str:
    """Kill a leader in each cluster by SIGKILL."""
    return "; ".join(kill(side.stress, [side.stress.leader()]) for side in clusters.sides)


def cut_connections(clusters: LinkStress) -> str:
    """Cut all connections between the clusters."""
    clusters.cut()
    return _hold(clusters)


def cut_one_connection(clusters: LinkStress) -> str:
    """Cut the connections of one pair of brokers."""
    pair = clusters.rng.choice(clusters.link_pairs())
    clusters.relays.cut(*pair)
    return f"{pair}, {_hold(clusters)}"


def stall_connections(clusters: LinkStress) -> str:
    """Stop all bytes between the clusters; connections stay open."""
    for pair in clusters.link_pairs():
        clusters.relays.stall(*pair)
    return _hold(clusters)


def delay_connections(clusters: LinkStress) -> str:
    """Delay all bytes between the clusters."""
    delay_ms = clusters.rng.randint(20, 300)
    for pair in clusters.link_pairs():
        clusters.relays.delay(*pair, delay_ms)
    return f"by {delay_ms} ms, {_hold(clusters)}"


def pause_link(clusters: LinkStress) -> str:
    """Pause and resume the link by commands, in the cluster with the mirrors."""
    shell = Shell(clusters.passive.bootstrap)
    for word in ("pause", "resume"):
        done = shell.run_in_process("links", word, LINK)
        assert done.returncode == 0, done.stderr
        description = _hold(clusters)
    return description


def delete_by_retention(clusters: LinkStress) -> str:
    """Let the source delete records that the mirror does not have, during an outage."""
    key = TopicPartition(RETAINED, 0)
    bootstrap = clusters.active.bootstrap
    clusters.cut()
    end = await_ranges(clusters.passive.bootstrap, {RETAINED: 1})[key][1]
    _write(bootstrap, RETAINED, 400)
    eventually(
        lambda: await_ranges(bootstrap, {RETAINED: 1})[key][0] > end,
        lambda: f"nothing is deleted: {await_ranges(bootstrap, {RETAINED: 1})}, mirror to {end}",
        HEAL_TIMEOUT_S,
        pause_s=0.5,
    )
    return f"from {end} to {await_ranges(bootstrap, {RETAINED: 1})[key][0]}"


def compact(clusters: LinkStress) -> str:
    """Let the source compact records that the mirror does not have, during an outage."""
    bootstrap = clusters.active.bootstrap
    clusters.cut()
    end = await_ranges(bootstrap, {COMPACTED: 1})[TopicPartition(COMPACTED, 0)][1]
    written = 400
    _write(bootstrap, COMPACTED, written, keys=_KEYS)

    def kept() -> int:
        return sum(offset >= end for offset, _ in read_values(bootstrap, COMPACTED, 0))

    eventually(lambda: kept() < written, "nothing is compacted", HEAL_TIMEOUT_S, pause_s=1.0)
    return f"{kept()} of {written} records are left"


def elect_unclean(clusters: LinkStress) -> str:
    """Let the first cluster lose records that the mirror has, by an unclean election."""
    stress = clusters.first.stress

    def isr() -> tuple[int, ...]:
        return stress.view.partition(TRUNCATED).isr

    seen = stress.view.partition(TRUNCATED)
    leader = stress.cluster.node(seen.leader)
    (other,) = [stress.cluster.node(each) for each in seen.replicas if each != seen.leader]
    kill(stress, [other])
    await_that(isr, lambda found: found == (leader.node_id,), HEAL_TIMEOUT_S, "its ISR")
    _write(clusters.first.bootstrap, TRUNCATED, 20, acks="1")
    clusters.await_mirrored()
    kill(stress, [leader])
    other.start()
    await_that(
        lambda: stress.view.partition(TRUNCATED).leader,
        lambda found: found == other.node_id,
        HEAL_TIMEOUT_S,
        "an unclean election",
    )
    _write(clusters.first.bootstrap, TRUNCATED, 30, acks="1")
    return f"20 records of node {leader.node_id}"


def _write(bootstrap: str, topic: str, count: int, keys: int = 0, acks: str = "all") -> None:
    """Write records; with keys, each of them again and again."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": 0,
            "batch.num.messages": 10,
            "log_level": 0,
            **QUICK,
        }
    )
    errors: list[object] = []
    marker = b"%d" % time.time_ns()
    for number in range(count):
        producer.produce(
            topic,
            marker + b":%d:" % number + _VALUE,
            key=b"%d" % (number % keys) if keys else None,
            partition=0,
            on_delivery=lambda error, _: errors.append(error) if error is not None else None,
        )
        producer.poll(0)
    assert producer.flush(HEAL_TIMEOUT_S) == 0, f"{topic} does not accept records"
    assert not errors, errors[:3]


def _hold(clusters: LinkStress) -> str:
    """Keep the fault for a random time; return its duration."""
    seconds = clusters.rng.random() * OUTAGE_S
    time.sleep(seconds)
    return f"for {seconds:.1f} s"


LINK_FAULTS = (
    *_node_faults(),
    LinkFault("both: kill -9 of a leader", kill_leaders_of_both, weight=2),
    LinkFault("connections cut", cut_connections, weight=2),
    LinkFault("one connection cut", cut_one_connection),
    LinkFault("connections stalled", stall_connections, weight=2),
    LinkFault("connections slow", delay_connections, weight=2),
    LinkFault("link paused", pause_link),
    LinkFault("retention during an outage", delete_by_retention, weight=2),
    LinkFault("compaction during an outage", compact, weight=2),
    LinkFault("unclean election", elect_unclean, weight=2),
)
