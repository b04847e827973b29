"""`python -m bench.machine_failover`: time from the kill of a machine to the next acknowledgement.

Three machines (127.0.0.1, 127.0.0.2, 127.0.0.3) of two brokers and a controller each, and one
partition that each broker leads, with replicas on all machines. A librdkafka producer with acks=all
sends a record every few milliseconds to the partition of the broker that dies. Rounds of three
kinds take turns: the broker alone dies (kill -9), its whole machine dies, and its machine dies with
the active controller. Each round then starts the processes again, and waits until all replicas
are in sync and the preferred leaders lead.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from barnabas.client.facade import Client
from barnabas.testing.cluster_process import ClusterProcess
from bench.failover import TOPIC, Load, await_condition, time_cells
from bench.report import machine

if TYPE_CHECKING:
    from barnabas.testing.cluster_process import NodeProcess

MACHINES = 3
BROKERS = 6
START_TIMEOUT_S = 300
# Load before each kill. Started processes import modules in the background at first.
STEADY_S = 4.0
# Replicas of partition N - 1: broker N leads it, and the others are on the other machines.
REPLICAS = [[first, first % BROKERS + 1, (first + 1) % BROKERS + 1] for first in range(1, 7)]
BROKER, FOLLOWING_MACHINE, CONTROLLING_MACHINE = (
    "a broker",
    "its machine, active controller elsewhere",
    "its machine with the active controller",
)


class ClusterOnMachines(ClusterProcess):
    """A cluster whose brokers and controllers are spread over three machines in turn."""

    def host_of(self, number: int) -> str:
        """Return the machine of a node."""
        return f"127.0.0.{(number - 1) % MACHINES + 1}"


class Rounds:
    """Kills processes of a cluster, and measures the time until the next acknowledgement."""

    def __init__(self, cluster: ClusterOnMachines) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, BROKERS, replica_assignment=REPLICAS)
        self._admin.create_topics([topic])[TOPIC].result(60)
        self._rounds = 0

    def measure(self, kind: str) -> float:
        """Return the seconds from the kill to the first acknowledgement of a later record."""
        await_condition(self._is_whole)
        broker, dying = self._targets(kind)
        load = Load(self._cluster.bootstrap, partition=broker - 1)

        def kill() -> None:
            for node in dying:
                node.kill()

        took = load.time_after(kill, STEADY_S)
        load.close()
        for node in dying:
            node.launch()
        for node in dying:
            node.await_ready(START_TIMEOUT_S)
        return took

    def _targets(self, kind: str) -> tuple[int, list[NodeProcess]]:
        """Return the broker whose partition is measured, and all nodes that die."""
        self._rounds += 1
        nodes = self._cluster.nodes
        if kind == BROKER:
            broker = self._rounds % BROKERS + 1
            return broker, [nodes[broker]]
        with Client(self._cluster.bootstrap) as client:
            active = client.admin.describe_quorum().leader_id
        host = self._cluster.host_of(active)
        if kind == FOLLOWING_MACHINE:
            others = sorted({self._cluster.host_of(each) for each in nodes} - {host})
            host = others[self._rounds % len(others)]
        on_host = [number for number in nodes if self._cluster.host_of(number) == host]
        brokers = [number for number in on_host if nodes[number].is_broker]
        return brokers[self._rounds % len(brokers)], [nodes[number] for number in on_host]

    def _is_whole(self) -> bool:
        """Return whether all replicas are in sync and the preferred leaders lead."""
        found = self._admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        if len(found) < BROKERS or any(len(each.isrs) < MACHINES for each in found.values()):
            return False
        moved = [number for number, each in found.items() if each.leader != number + 1]
        if moved:
            wanted = [TopicPartition(TOPIC, number) for number in moved]
            self._admin.elect_leaders(ElectionType.PREFERRED, wanted).result(60)
        return not moved


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each kind")
    options = parser.parse_args()
    kinds = (BROKER, FOLLOWING_MACHINE, CONTROLLING_MACHINE)
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    cluster = ClusterOnMachines(BROKERS, MACHINES)
    try:
        cluster.start(START_TIMEOUT_S)
        rounds = Rounds(cluster)
        for _ in range(options.rounds):
            for kind in kinds:
                times[kind].append(rounds.measure(kind))
    finally:
        cluster.close()
    table = Table("kill -9 of", "each, s", "median", "worst", title=machine())
    for kind in kinds:
        table.add_row(kind, *time_cells(times[kind]))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
