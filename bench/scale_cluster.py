"""`python -m bench.scale_cluster`: three nodes with many partitions, and the kill of one node.

For each number of partitions, a new cluster gets topics of 500 partitions with a replica on each
node. The rows have the time until all of them have leaders and are in sync, the memory of each node
and its processor time while nothing happens, the time from a kill (kill -9) of one node until the
others lead its partitions, and the time from its start until all replicas are in sync again. What
the partitions do is asked by Metadata requests, whose own time ends each measurement. The last rows
compare the largest number of partitions with the smallest one: memory and time for each partition
more.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from barnabas.testing.cluster_process import ClusterProcess
from bench.report import machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.testing.cluster_process import NodeProcess

NODES = 3
PARTITIONS_PER_TOPIC = 500
IDLE_S = 10.0
LIMIT_S = 900.0
TOPICS = "many-"
MADE, MEMORY, IDLE = "made on all nodes, s", "memory of a node, MB", "idle, % of a core of a node"
LED, BACK = "kill -9 to the last new leader, s", "start to all replicas in sync, s"


def states(admin: AdminClient, killed: int | None = None) -> tuple[int, int]:
    """Return how many partitions have a living leader, and how many are in sync on all nodes."""
    try:
        metadata = admin.list_topics(timeout=60)
    except KafkaException:
        return -1, -1
    partitions = [
        partition
        for name, topic in metadata.topics.items()
        if name.startswith(TOPICS)
        for partition in topic.partitions.values()
    ]
    led = sum(
        partition.leader in metadata.brokers and partition.leader != killed
        for partition in partitions
    )
    return led, sum(len(partition.isrs) == NODES for partition in partitions)


def seconds_until(is_done: Callable[[], bool]) -> float:
    """Return the seconds until `is_done()`; fails after `LIMIT_S`."""
    started = asked = time.monotonic()
    while not is_done():
        now = time.monotonic()
        if now > started + LIMIT_S:
            raise TimeoutError(f"the partitions did not change within {LIMIT_S} s")
        # The answers have each partition: leave the nodes time for other work.
        time.sleep(max(0.05, now - asked))
        asked = time.monotonic()
    return asked - started


def measure(partitions: int) -> dict[str, float]:
    """Return the figures of one cluster."""
    cluster = ClusterProcess(NODES)
    nodes = list(cluster.nodes.values())
    with cluster:
        memory = sum(_memory(node) for node in nodes)
        started = time.monotonic()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        _make_topics(admin, partitions)
        seconds_until(lambda: states(admin) == (partitions, partitions))
        figures = {MADE: time.monotonic() - started}
        time.sleep(IDLE_S)
        before = sum(_processor(node) for node in nodes)
        time.sleep(IDLE_S)
        figures[IDLE] = 100 * (sum(_processor(node) for node in nodes) - before) / IDLE_S / NODES
        figures[MEMORY] = sum(_memory(node) for node in nodes) / NODES / 1e6
        figures["memory before, MB"] = memory / NODES / 1e6
        number, killed = next(iter(cluster.nodes.items()))
        killed.kill()
        figures[LED] = seconds_until(lambda: states(admin, number)[0] == partitions)
        killed.start()
        figures[BACK] = seconds_until(lambda: states(admin)[1] == partitions)
    return figures


def _make_topics(admin: AdminClient, partitions: int) -> None:
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        topic = NewTopic(f"{TOPICS}{number}", PARTITIONS_PER_TOPIC, NODES)
        admin.create_topics([topic], operation_timeout=120, request_timeout=120)[
            topic.topic
        ].result(120)


def _memory(node: NodeProcess) -> int:
    return psutil.Process(node.pid).memory_info().rss


def _processor(node: NodeProcess) -> float:
    times = psutil.Process(node.pid).cpu_times()
    return times.user + times.system


def slopes(smallest: int, small: dict[str, float], largest: int, large: dict[str, float]) -> Table:
    """Return what each partition more costs."""
    more = largest - smallest
    table = Table(title="each partition more", show_header=False)
    table.add_row("memory of a node, KB", f"{(large[MEMORY] - small[MEMORY]) * 1000 / more:.2f}")
    for name in (MADE, LED, BACK):
        milliseconds = (large[name] - small[name]) * 1000 / more
        table.add_row(name.replace(", s", ", ms"), f"{milliseconds:.3f}")
    return table


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10_000, 20_000, 40_000])
    options = parser.parse_args()
    found = {}
    for partitions in options.partitions:
        found[partitions] = measure(partitions)
        print(f"  {partitions:,} partitions: {found[partitions]}", flush=True)
    table = Table("", *(f"{partitions:,}" for partitions in found), title=machine())
    for name in next(iter(found.values())):
        table.add_row(name, *(f"{figures[name]:.1f}" for figures in found.values()))
    console = Console(width=160)
    console.print(table)
    smallest, largest = min(found), max(found)
    if smallest != largest:
        console.print(slopes(smallest, found[smallest], largest, found[largest]))


if __name__ == "__main__":
    main()
