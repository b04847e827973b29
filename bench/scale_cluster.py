"""`python -m bench.scale_cluster`: three nodes with many partitions, and the kill of one node.

For each number of partitions, a new cluster gets topics of 500 partitions with a replica on each
node. The rows have the time until every node has all replicas, the memory of each node and its
processor time while nothing happens, the time from a kill (kill -9) of one node until the others
lead its partitions, and the time from its start until all replicas are in sync again. The numbers
are read from the nodes' metrics. The last rows compare the largest number of partitions with the
smallest one: memory and time for each partition more.
"""

from __future__ import annotations

import argparse
import time
import urllib.request
from typing import TYPE_CHECKING

import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from barnabas.testing.cluster_process import ClusterProcess
from bench.report import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.testing.cluster_process import NodeProcess

NODES = 3
PARTITIONS_PER_TOPIC = 500
IDLE_S = 10.0
LIMIT_S = 900.0
REPLICAS = "kafka_server_replicamanager_partitioncount"
LEADERS = "kafka_server_replicamanager_leadercount"
LAGGING = "kafka_server_replicamanager_underreplicatedpartitions"

MADE, MEMORY, IDLE = "made on all nodes, s", "memory of a node, MB", "idle, % of a core of a node"
LED, BACK = "kill -9 to the last new leader, s", "start to all replicas in sync, s"


def gauge(node: NodeProcess, name: str) -> float:
    """Return a gauge of a node; -1 if the node does not answer."""
    try:
        with urllib.request.urlopen(f"http://{node.metrics_address}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
    except OSError:
        return -1
    return next((float(line.split()[-1]) for line in lines if line.split(" ")[0] == name), -1)


def total(nodes: Iterable[NodeProcess], name: str) -> float:
    """Return the sum of a gauge of several nodes."""
    return sum(gauge(node, name) for node in nodes)


def seconds_until(is_done: Callable[[], bool]) -> float:
    """Return the seconds until `is_done()`; fails after `LIMIT_S`."""
    started = time.monotonic()
    while not is_done():
        if time.monotonic() > started + LIMIT_S:
            raise TimeoutError(f"the partitions did not change within {LIMIT_S} s")
        time.sleep(0.05)
    return time.monotonic() - started


def measure(partitions: int) -> dict[str, float]:
    """Return the figures of one cluster."""
    with ClusterProcess(NODES, settings={"metrics.listener": "127.0.0.1:0"}) as cluster:
        nodes = list(cluster.nodes.values())
        memory = sum(_memory(node) for node in nodes)
        started = time.monotonic()
        _make_topics(cluster, partitions)
        seconds_until(lambda: total(nodes, REPLICAS) == NODES * partitions)
        figures = {MADE: time.monotonic() - started}
        seconds_until(lambda: total(nodes, LAGGING) == 0)
        time.sleep(IDLE_S)
        before = sum(_processor(node) for node in nodes)
        time.sleep(IDLE_S)
        figures[IDLE] = 100 * (sum(_processor(node) for node in nodes) - before) / IDLE_S / NODES
        figures[MEMORY] = sum(_memory(node) for node in nodes) / NODES / 1e6
        figures["memory before, MB"] = memory / NODES / 1e6
        killed, *others = nodes
        killed.kill()
        figures[LED] = seconds_until(lambda: total(others, LEADERS) == partitions)
        killed.start()
        figures[BACK] = seconds_until(lambda: total(others, LAGGING) == 0)
    return figures


def _make_topics(cluster: ClusterProcess, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        topic = NewTopic(f"many-{number}", PARTITIONS_PER_TOPIC, NODES)
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
