"""`make bench`, second table: Python clients side by side, on Barnabas and on Apache Kafka.

Each load runs in a separate process. The clients take turns in each round, so that noise affects
all of them. The tables have the best round; a budget is met if each round meets it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bench import brokers
from bench.brokers import Broker
from bench.budgets import OURS, Budget, speed_verdict
from bench.client_loads import PARTITIONS, READERS, WRITERS
from bench.loads import create_topic
from bench.report import machine, new_console, write_figures

if TYPE_CHECKING:
    from collections.abc import Mapping

SIZES = (100, 1000)
LOAD_SECONDS_MAX = 600
# Our form of each load in the column of ratios.
SHOWN = {"consume": "barnabas, batches", "produce": "barnabas, send"}

# Our form of each load that is compared with confluent-kafka: at least as fast, record by record.
COMPARED = {"consume": "barnabas, records", "produce": "barnabas, send"}
RIVAL = "confluent-kafka"

# Load, then client, then broker: for each round, records/s and CPU µs per record.
Figures = dict[str, dict[str, dict[str, list[dict[str, float]]]]]


def run_load(
    what: str, client: str, broker: Broker, topic: str, count: int, size: int
) -> dict[str, float]:
    """Run one load in a separate process."""
    words = [what, client, broker.address, topic, str(count), str(size)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.client_loads", *words],
        capture_output=True,
        text=True,
        timeout=LOAD_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{what} with {client} on {broker.name} failed: {done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(running: list[Broker], records: int, rounds: int, console: Console) -> Figures:
    """Run every client, load and size on every broker."""
    figures: Figures = {}
    for size in SIZES:
        # Fewer large records: twice the bytes of the records of 100 bytes.
        count = records if size == 100 else records // 5
        for broker in running:
            create_topic(broker, f"read-{size}", PARTITIONS)
            run_load("produce", "confluent-kafka", broker, f"read-{size}", count, size)
            create_topic(broker, f"write-{size}", PARTITIONS)
        for turn in range(rounds):
            for what, clients in (("consume", READERS), ("produce", WRITERS)):
                topic = f"{'read' if what == 'consume' else 'write'}-{size}"
                for client in clients:
                    for broker in running:
                        console.print(
                            f"  round {turn + 1}: {what} {size} B, {client}, {broker.name}"
                        )
                        found = run_load(what, client, broker, topic, count, size)
                        row = figures.setdefault(f"{what}, {size} B", {}).setdefault(client, {})
                        row.setdefault(broker.name, []).append(found)
    return figures


def measure_memory(broker: Broker, records: int, console: Console) -> dict[str, dict[str, float]]:
    """Measure the memory of the Barnabas consumer with ten million records and with slow polls."""
    figures = {}
    for what in ("memory", "slow"):
        console.print(f"  {what}")
        figures[what] = run_load(what, "barnabas", broker, "read-100", records, 100)
    return figures


def show(figures: Figures, names: list[str], console: Console) -> None:
    """Print a table per load, with a row per client and the ratio of Barnabas to it."""
    for load, rows in figures.items():
        table = Table(title=f"{load}: {os.cpu_count()} cores, {machine()}")
        table.add_column("")
        for name in names:
            table.add_column(f"records/s, {name}", justify="right")
            table.add_column("CPU µs/record", justify="right")
            table.add_column("Barnabas is", justify="right")
        ours = rows[SHOWN[load.split(",")[0]]]
        for client, by_broker in rows.items():
            cells = []
            for name in names:
                speed, cpu_us = best_of(by_broker[name])
                ratio = best_of(ours[name])[0] / speed
                cells += [f"{speed:,.0f}", f"{cpu_us:.2f}", f"{ratio:.2f}x"]
            table.add_row(client, *cells)
        console.print(table)
        for name in names:
            console.print(f"  budget on {name}: {verdict(load, rows, name)}")


def best_of(rounds: list[dict[str, float]]) -> tuple[float, float]:
    """Return the best records/s and CPU µs per record of all rounds."""
    return max(each["per_second"] for each in rounds), min(each["cpu_us"] for each in rounds)


def verdict(load: str, rows: Mapping[str, dict[str, list[dict[str, float]]]], broker: str) -> str:
    """Compare our client, record by record, with confluent-kafka."""
    client = COMPARED[load.split(",", maxsplit=1)[0]]
    ours, others = rows[client][broker], rows[RIVAL][broker]
    speeds = [[each["per_second"] for each in rounds] for rounds in (ours, others)]
    costs = [[each["cpu_us"] for each in rounds] for rounds in (ours, others)]
    speed = speed_verdict(*speeds, 1.0)
    cpu = Budget({RIVAL: 1.0}).verdict(dict(zip((OURS, RIVAL), costs, strict=True)))
    return f"{client}: records/s {speed}; CPU {cpu}"


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="100-byte records per load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brokers", default="barnabas,kafka", help="kafka needs Java and Maven")
    parser.add_argument("--no-memory", action="store_true", help="do not measure memory")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    names = options.brokers.split(",")
    console = new_console()
    memory = {}
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(brokers.running(name)) for name in names]
        figures = measure(running, options.records, options.rounds, console)
        if not options.no_memory:
            memory = measure_memory(running[0], options.records, console)
    show(figures, names, console)
    for what, found in memory.items():
        console.print(
            f"{what}: {found['records']:,.0f} records, {found['early_mb']:.0f} MB early, "
            f"{found['late_mb']:.0f} MB late"
        )
    write_figures(options.json, {"loads": figures, "memory": memory})


if __name__ == "__main__":
    main()
