"""`python -m bench.node`: a node of two broker processes beside one broker and Apache Kafka.

Two clients that do almost nothing (`bench.raw_load`) use all partitions. The logs are in memory,
unless `--directory` names another place, because a slow disk would decide otherwise. The brokers
take turns; the first round is a warm-up. The table has the medians of the other rounds, and the
worst ratios of a round.

Clients and brokers share the cores, so the clients take a part of what a node could use. Therefore
each speed has a bound beside it. With C cores, b seconds of brokers and c seconds of clients for a
GB, all cores are busy at C / (b + c) GB a second; one broker also needs a whole core at 1 / b.
*reached* is the speed in relation to that bound. It falls if other programs run, whose share of the
cores has a column of its own.

`--brokers barnabas,node` leaves Apache Kafka out. With `--replicas`, partitions have three replicas
and writes wait for all of them. The servers are then three nodes of one broker, two nodes of two
brokers at two addresses, and three nodes of Apache Kafka.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import psutil
from rich.table import Table

from bench import brokers, loads
from bench.budgets import speed_verdict
from bench.cases import add_rounds, new_parser
from bench.raw_load import Leader, prepared_batch, read_batches, run_clients, send_batches
from bench.report import installed, machine, new_console, write_figures

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rich.console import Console

    from bench.brokers import Broker

ONE, NODE, KAFKA = "barnabas", brokers.NODE, "kafka"
CORES = len(os.sched_getaffinity(0))
MEMORY = "/dev/shm"
PARTITIONS = 4
CLIENTS = 2
ACKS_ALL = -1
# Logs of deleted topics are removed at once, because memory is scarce.
SETTINGS = {"log.segment.delete.delay.ms": "1", "offsets.topic.num.partitions": "1"}
# Goals for the worst round.
REACHED_MIN, SPEEDUP_MIN, CPU_MAX, KAFKA_SPEED_MIN = 0.9, 1.4, 1.05, 1.5
# Other programs use less on a quiet machine.
QUIET_CORES = 0.2
SMALL_BATCH_BYTES = 16 * 1024


class Case(NamedTuple):
    """A size of records and batches."""

    record_bytes: int
    batch_bytes: int

    @property
    def name(self) -> str:
        """The first part of the names of its rows."""
        return f"{self.record_bytes} B in batches of {self.batch_bytes // 1024:,} KiB"


# Brokers accept batches of up to 1 MiB with their overhead.
CASES = tuple(
    Case(record, batch) for record in (100, 1000) for batch in (SMALL_BATCH_BYTES, 1_000 * 1024)
)


class Run(NamedTuple):
    """One load on one server."""

    gb: float
    seconds: float
    # Processor seconds of all brokers, of all clients, and of other programs.
    broker_cpu: float
    client_cpu: float
    other_cpu: float

    @property
    def speed(self) -> float:
        """MB a second."""
        return 1000 * self.gb / self.seconds

    @property
    def cpu(self) -> float:
        """Processor seconds of the brokers for a GB."""
        return self.broker_cpu / self.gb

    @property
    def other_cores(self) -> float:
        """Mean number of cores that other programs used."""
        return self.other_cpu / self.seconds

    def bound(self, processes: int) -> float:
        """Return the speed (MB/s) at which the cores, or these broker processes, are all busy."""
        return (
            1000
            * self.gb
            * min(CORES / (self.broker_cpu + self.client_cpu), processes / self.broker_cpu)
        )

    def reached(self, processes: int) -> float:
        """Return the speed in relation to its bound."""
        return self.speed / self.bound(processes)


# Number of processes that share the work of a server, without and with replicas. Kafka's threads
# use all cores.
PROCESSES = {ONE: 1, NODE: brokers.NODE_BROKERS, KAFKA: CORES}
PROCESSES_OF_CLUSTERS = {ONE: 3, NODE: 2 * brokers.NODE_BROKERS, KAFKA: 3 * CORES}
# Runs by row and server, one for each round.
Runs = dict[str, dict[str, list[Run]]]


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _run(server: Broker, works: Sequence[Callable[[], None]], sent_bytes: int) -> Run:
    busy, before = _busy_seconds(), server.cpu_seconds()
    spent = run_clients(works)
    broker_cpu = server.cpu_seconds() - before
    # All clocks have a resolution of 10 ms.
    others = max(0.0, _busy_seconds() - busy - broker_cpu - spent.cpu_seconds)
    return Run(sent_bytes / 1e9, spent.seconds, broker_cpu, spent.cpu_seconds, others)


def broker_ids(server: Broker) -> list[int]:
    """Return the ids of all brokers."""
    from confluent_kafka.admin import AdminClient

    found = AdminClient(server.client_settings).list_topics(timeout=30).brokers
    return sorted(found)


def leaders_of(server: Broker, topic: str) -> list[Leader]:
    """Return the partitions of a topic with their leaders."""
    from confluent_kafka.admin import AdminClient

    found = AdminClient(server.client_settings).list_topics(topic, timeout=30)
    of_ids = found.brokers
    partitions = found.topics[topic].partitions.values()
    return [
        Leader(of_ids[each.leader].host, of_ids[each.leader].port, each.id) for each in partitions
    ]


def run_case(server: Broker, case: Case, total: int, replicas_each: int = 1) -> dict[str, Run]:
    """Produce and consume; return the runs by row.

    Args:
        server: the server.
        case: the size of records and batches.
        total: bytes of values.
        replicas_each: the number of replicas of a partition; writes wait for all of them.
    """
    batch = prepared_batch(case.record_bytes, case.batch_bytes)
    ids = broker_ids(server)
    replicas = [
        [ids[(number + rank) % len(ids)] for rank in range(replicas_each)]
        for number in range(PARTITIONS)
    ]
    share = total // CLIENTS
    sent = batch.sent_bytes(share, PARTITIONS) * CLIENTS
    with loads.temporary_topic(server, "node", replicas=replicas) as topic:
        leaders = leaders_of(server, topic)
        sending = partial(send_batches, topic, leaders, batch, share, ACKS_ALL)
        reading = partial(read_batches, topic, leaders, batch, share)
        return {
            f"produce, {case.name}": _run(server, [sending] * CLIENTS, sent),
            f"consume, {case.name}": _run(server, [reading] * CLIENTS, sent),
        }


def measure(servers: Sequence[Broker], options: argparse.Namespace, console: Console) -> Runs:
    """Run all cases on all servers in turns, in a warm-up round and further ones."""
    rounds, volume = options.rounds, options.mb * 1_000_000
    replicas_each = 3 if options.replicas else 1
    runs: Runs = {}
    for number in range(rounds + 1):
        for case in CASES:
            total = volume if case.batch_bytes > SMALL_BATCH_BYTES else volume // 3
            for server in servers:
                console.print(f"  round {number} of {rounds}: {server.name}, {case.name}")
                for row, run in run_case(server, case, total, replicas_each).items():
                    if number:
                        runs.setdefault(row, {}).setdefault(server.name, []).append(run)
                # The servers remove the deleted logs.
                time.sleep(0.2)
    return runs


def _verdicts(row: str, of: dict[str, list[Run]], processes: Mapping[str, int]) -> list[str]:
    """Return the verdicts for the worst round of a row."""
    if NODE not in of:
        return []
    node = of[NODE]
    reached = [run.reached(processes[NODE]) for run in node]
    found = [f"reached {speed_verdict(reached, [1.0] * len(node), REACHED_MIN)}"]
    if ONE in of:
        one = of[ONE]
        speeds = speed_verdict([x.speed for x in node], [x.speed for x in one], SPEEDUP_MIN)
        worst = max(ours.cpu / its.cpu for ours, its in zip(node, one, strict=True))
        is_met = "met" if worst <= CPU_MAX else "MISSED"
        found += [
            f"MB/s / one: {speeds}",
            f"CPU / one: <= {CPU_MAX}x {is_met} (worst {worst:.2f}x)",
        ]
    if KAFKA in of:
        times = KAFKA_SPEED_MIN if f"of {SMALL_BATCH_BYTES // 1024} KiB" in row else 1.0
        speeds = speed_verdict([x.speed for x in node], [x.speed for x in of[KAFKA]], times)
        found.append(f"MB/s / kafka: {speeds}")
    return found


def show(runs: Runs, processes: Mapping[str, int], console: Console) -> None:
    """Print the medians of all rows, and the goals."""
    table = Table(title=f"{CORES} cores, {machine()}")
    for name in ("", "server", "MB/s", "bound", "reached", "CPU s/GB", "clients s/GB", "others"):
        table.add_column(name, justify="left" if name in ("", "server") else "right")
    table.add_column("goals of the node, worst round")
    for row, of in runs.items():
        verdicts = _verdicts(row, of, processes)
        for index, (name, rounds) in enumerate(of.items()):
            middle = {
                "speed": statistics.median(run.speed for run in rounds),
                "bound": statistics.median(run.bound(processes[name]) for run in rounds),
                "reached": statistics.median(run.reached(processes[name]) for run in rounds),
                "cpu": statistics.median(run.cpu for run in rounds),
                "clients": statistics.median(run.client_cpu / run.gb for run in rounds),
                "others": statistics.median(run.other_cores for run in rounds),
            }
            is_last = index == len(of) - 1
            goals = "\n".join(verdicts[index:] if is_last else verdicts[index : index + 1])
            table.add_row(
                "" if index else row,
                name,
                *(f"{middle[key]:,.0f}" for key in ("speed", "bound")),
                *(f"{middle[key]:.2f}" for key in ("reached", "cpu", "clients", "others")),
                goals,
                end_section=is_last,
            )
    console.print(table)


def _running(name: str, is_replicated: bool) -> AbstractContextManager[Broker]:
    """Run the server of this name."""
    if name == NODE:
        return (brokers.running_nodes if is_replicated else brokers.running_node)(SETTINGS)
    if is_replicated:
        return brokers.running_cluster(name, SETTINGS)
    return brokers.running(name, SETTINGS)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = new_parser(__doc__)
    parser.set_defaults(brokers=f"{ONE},{NODE},{KAFKA}")
    add_rounds(parser)
    parser.add_argument("--mb", type=int, default=600, help="MB of values of a load")
    parser.add_argument("--directory", default=MEMORY, help="where the logs are")
    parser.add_argument("--replicas", action="store_true", help="three replicas, acks=all")
    options = parser.parse_args()
    console = new_console(170)
    tempfile.tempdir = options.directory
    with ExitStack() as stack:
        names = installed(options.brokers, console)
        servers = [stack.enter_context(_running(name, options.replicas)) for name in names]
        runs = measure(servers, options, console)
    show(runs, PROCESSES_OF_CLUSTERS if options.replicas else PROCESSES, console)
    others = max(
        run.other_cores for of in runs.values() for rounds in of.values() for run in rounds
    )
    if others > QUIET_CORES:
        console.print(f"other programs used up to {others:.1f} cores: repeat on a quiet machine")
    write_figures(
        options.json,
        {
            row: {name: [run._asdict() for run in rounds] for name, rounds in of.items()}
            for row, of in runs.items()
        },
    )


if __name__ == "__main__":
    main()
