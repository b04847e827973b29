"""`make bench`: one table, Barnabas beside other brokers, with ratios.

`--json FILE` keeps the figures.

Client and broker share the machine's cores, so the processor time of the broker is the figure that
says most; the brokers take turns, load by load, so that noise hits both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import brokers, loads
from bench.brokers import Broker

GB = 1_000_000_000
# Name, record size, share of the volume, librdkafka settings.
PRODUCE = [
    ("produce, librdkafka defaults, 100 B", 100, 1.0, {}),
    ("produce, 16 KiB batches, 100 B", 100, 0.3, {"batch_size": 16384}),
    ("produce, 1000 B", 1000, 1.0, {}),
]

Figures = dict[str, dict[str, float]]


def measure(running: list[Broker], volume: int, console: Console) -> Figures:
    """Runs every load on every broker; figures by row, then by broker."""
    figures: Figures = {}

    def note(row: str, broker: Broker, value: float) -> None:
        figures.setdefault(row, {})[broker.name] = value

    for broker in running:
        note("start to first answer, ms", broker, broker.start_ms)
        note("resident memory idle, MB", broker, broker.resident_mb())
        loads.create_topic(broker, "warm-up")
        # Java compiles what it has run often.
        loads.produce(broker, "warm-up", 100, volume // 4)
    for number, (name, size, share, config) in enumerate(PRODUCE):
        total = int(volume * share) // size * size
        topic = f"load-{number}"
        for broker in running:
            console.print(f"  {broker.name}: {name}, {total / 1e6:.0f} MB")
            loads.create_topic(broker, topic)
            figure = loads.produce(broker, topic, size, total, **config)
            note(f"{name}: CPU s/GB", broker, figure.cpu_seconds_per_gb)
            note(f"{name}: MB/s", broker, figure.mb_per_second)
            figure = loads.consume(broker, topic, size, total)
            consumed = name.replace("produce", "consume")
            note(f"{consumed}: CPU s/GB", broker, figure.cpu_seconds_per_gb)
            note(f"{consumed}: MB/s", broker, figure.mb_per_second)
    for broker in running:
        loads.create_topic(broker, "round-trip", 1)
        trip = loads.round_trip(broker, "round-trip")
        note("acks=1 round trip p50, µs", broker, trip.p50)
        note("acks=1 round trip p99, µs", broker, trip.p99)
        note("broker CPU of a round trip, µs", broker, trip.cpu)
        note("resident memory after the load, MB", broker, broker.resident_mb())
    return figures


def measure_spark(running: list[Broker], volume: int, figures: Figures) -> None:
    """Adds the Spark read of the first load's topic."""
    from bench.spark_read import spark_read

    for broker in running:
        for sink, rate in spark_read(broker.address, "load-0", volume // 100).items():
            row = f"Spark read to {sink}, 100 B: M records/s"
            figures.setdefault(row, {})[broker.name] = rate


def show(figures: Figures, names: list[str], console: Console) -> None:
    """Prints the table: a column a broker, and how many times Barnabas' figure is of each."""
    table = Table(title=f"{os.cpu_count()} cores, {machine()}")
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    for name in names[1:]:
        table.add_column(f"barnabas / {name}", justify="right")
    for row, values in figures.items():
        ours = values["barnabas"]
        cells = [f"{values[name]:,.2f}" if name in values else "" for name in names]
        ratios = [f"{ours / values[name]:.2f}x" if values.get(name) else "" for name in names[1:]]
        table.add_row(row, *cells, *ratios)
    console.print(table)


def machine() -> str:
    """The processor's own name, and Python's version."""
    model = platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, Python {platform.python_version()}"


def main() -> None:
    """Command line: how much to send, what to leave out, where to keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=500, help="MB of values of a full load")
    parser.add_argument(
        "--brokers", default="barnabas,tansu", help="names, ours first; kafka needs Java and Maven"
    )
    parser.add_argument("--no-spark", action="store_true", help="leave the Spark read out")
    parser.add_argument("--json", type=Path, help="file to keep the figures in")
    options = parser.parse_args()
    names = options.brokers.split(",")
    # Wide enough for all columns where the output is a file.
    console = Console() if sys.stdout.isatty() else Console(width=150)
    volume = options.mb * GB // 1000
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(brokers.running(name)) for name in names]
        figures = measure(running, volume, console)
        if not options.no_spark:
            measure_spark(running[:1], volume, figures)
    show(figures, names, console)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
