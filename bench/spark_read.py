"""`make bench`, third table: batch reads by `format("barnabas")` and by Spark's Kafka connector.

Both read the same topic on each broker in one session. The connectors and brokers take turns in
each run, so that noise affects all of them. The first run is a warm-up. The table has the best of
the others, and a budget is met if each of them meets it. Processor time is that of all of Spark's
processes, Java and Python.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from rich.console import Console
from rich.table import Table

from barnabas.spark.session import spark_session
from bench import brokers, loads
from bench.brokers import Broker
from bench.budgets import speed_verdict
from bench.report import machine, new_console, write_figures
from examples.flights.connector import fetch_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("barnabas", "kafka")
SINKS = ("noop", "parquet")
TOPIC = "spark-read"
SIZE = 100


@dataclass(frozen=True)
class Figure:
    """Cost of a read: millions of records per second, and processor time per record in µs."""

    rate: float
    cpu_us: float


# The smallest allowed ratio of both speeds, by sink.
BUDGETS = {"noop": 3.0, "parquet": 2.0}
# By broker, sink and format: one figure for each run.
Figures = dict[tuple[str, str, str], list[Figure]]


def make_session() -> SparkSession:
    """Return a session on two cores with both connectors."""
    settings = {
        "spark.jars": fetch_jars(),
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
    }
    return spark_session("bench", "local[2]", settings)


def topic_of(spark: SparkSession, broker: Broker, source: str) -> DataFrame:
    """Return all rows and columns of the topic."""
    return (
        spark.read.format(source)
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", TOPIC)
        .load()
    )


def cpu_seconds() -> float:
    """Return the processor time of the session's Java process and Python workers so far."""
    [java] = [one for one in psutil.Process().children() if "pyspark-shell" in one.cmdline()]
    used = 0.0
    for process in (java, *java.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


def write(frame: DataFrame, sink: str, directory: str, records: int) -> Figure:
    """Write the frame to a sink."""
    cpu, started = cpu_seconds(), time.perf_counter()
    # Both sinks take a path; `noop` writes none.
    frame.write.format(sink).mode("overwrite").save(str(Path(directory, "table")))
    seconds, used = time.perf_counter() - started, cpu_seconds() - cpu
    return Figure(records / 1e6 / seconds, used * 1e6 / records)


def measure(
    spark: SparkSession, running: list[Broker], records: int, runs: int, console: Console
) -> Figures:
    """Run every format and sink on every broker."""
    frames = {(b.name, source): topic_of(spark, b, source) for b in running for source in FORMATS}
    for (broker, source), frame in frames.items():
        if (found := frame.count()) != records:
            raise SystemExit(f"{source} read {found} records on {broker} instead of {records}")
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as directory:
        for run, sink in itertools.product(range(runs + 1), SINKS):
            for (broker, source), frame in frames.items():
                found = write(frame, sink, directory, records)
                console.print(f"  run {run}: {source} to {sink}, {broker}: {found.rate:.2f}")
                # The first run is a warm-up.
                if run:
                    figures.setdefault((broker, sink, source), []).append(found)
    return figures


def show(figures: Figures, names: list[str], console: Console) -> None:
    """Print a row per broker and sink, with the ratio of both formats."""
    table = Table(title=f"Spark reads, {SIZE} B: {os.cpu_count()} cores, {machine()}")
    table.add_column("M records/s; CPU µs/record")
    for name in ('format("barnabas")', 'format("kafka")', "faster", "CPU"):
        table.add_column(name, justify="right")
    table.add_column("budget")
    for broker, sink in itertools.product(names, SINKS):
        runs = [figures[broker, sink, source] for source in FORMATS]
        ours, theirs = map(best_of, runs)
        cells = [f"{one.rate:.2f}; {one.cpu_us:.2f}" for one in (ours, theirs)]
        cells += [f"{ours.rate / theirs.rate:.2f}x", f"{ours.cpu_us / theirs.cpu_us:.2f}x"]
        rates = [[each.rate for each in of_one] for of_one in runs]
        table.add_row(f"{broker}, to {sink}", *cells, speed_verdict(*rates, BUDGETS[sink]))
    console.print(table)


def best_of(runs: list[Figure]) -> Figure:
    """Return the best value of each number."""
    return Figure(max(each.rate for each in runs), min(each.cpu_us for each in runs))


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2_000_000, help="records of 100 bytes")
    parser.add_argument("--runs", type=int, default=4, help="number of runs after the warm-up")
    parser.add_argument("--brokers", default="barnabas,kafka")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    console = new_console()
    if missing := brokers.missing_for("kafka"):
        console.print(
            f"  Spark is not measured, because its Kafka connector needs: {missing}", style="yellow"
        )
        return
    with contextlib.ExitStack() as stack:
        names = options.brokers.split(",")
        running = [stack.enter_context(brokers.running(name)) for name in names]
        for broker in running:
            loads.create_topic(broker, TOPIC)
            loads.produce(broker, TOPIC, SIZE, SIZE * options.records)
        spark = make_session()
        figures = measure(spark, running, options.records, options.runs, console)
        spark.stop()
    show(figures, names, console)
    best = {", ".join(key): asdict(best_of(runs)) for key, runs in figures.items()}
    write_figures(options.json, best)


if __name__ == "__main__":
    main()
