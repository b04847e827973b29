"""`make bench`, fourth table: streams from topic to topic by `format("barnabas")`.

The sink writes exactly once or at least once.

Both kinds take turns in each run, so that noise affects both. The first run is a warm-up, and the
best of the others counts. The query reads the records with the same source, so that the figure
includes the read. Processor time is that of all of Spark's processes, Java and Python.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from barnabas.spark.session import spark_session
from barnabas.spark.topics.options import parse_sink_options
from barnabas.spark.topics.writer import is_transactional
from bench import brokers, loads
from bench.brokers import Broker
from bench.report import installed, machine, new_console, write_figures
from bench.spark_read import SIZE, Figure, best_of, cpu_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "spark-write"
KINDS = {"exactly once": "true", "at least once": "false"}
# By broker and kind.
Figures = dict[tuple[str, str], Figure]


def make_session() -> SparkSession:
    """Return a session on two cores."""
    settings = {
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
    }
    return spark_session("bench", "local[2]", settings)


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the options for the number of records and runs."""
    parser.add_argument("--records", type=int, default=2_000_000, help="records of 100 bytes")
    parser.add_argument("--per-batch", type=int, default=500_000, help="records of a micro-batch")
    parser.add_argument("--runs", type=int, default=3, help="number of runs after the warm-up")


def topic_stream(spark: SparkSession, broker: Broker, topic: str, per_batch: int) -> DataFrame:
    """Return the stream of a topic from its start, with so many records in a micro-batch."""
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
    )


def copy(spark: SparkSession, broker: Broker, kind: str, records: int, per_batch: int) -> Figure:
    """Copy the topic to a new topic with a new query."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-spark-") as checkpoint,
        loads.temporary_topic(broker, "spark-copy") as out,
    ):
        cpu, started = cpu_seconds(), time.perf_counter()
        query = (
            topic_stream(spark, broker, TOPIC, per_batch)
            .select("key", "value")
            .writeStream.format("barnabas")
            .option("kafka.bootstrap.servers", broker.address)
            .option("topic", out)
            .option("exactlyOnce", KINDS[kind])
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds, used = time.perf_counter() - started, cpu_seconds() - cpu
    return Figure(records / 1e6 / seconds, used * 1e6 / records)


def measure(
    spark: SparkSession, running: list[Broker], options: argparse.Namespace, console: Console
) -> Figures:
    """Run both kinds on every broker."""
    figures: Figures = {}
    for run, broker, kind in itertools.product(range(options.runs + 1), running, KINDS):
        found = copy(spark, broker, kind, options.records, options.per_batch)
        console.print(f"  run {run}: {kind}, {broker.name}: {found.rate:.2f}")
        # The first run is a warm-up.
        if run:
            key = broker.name, kind
            figures[key] = best_of([found, figures.get(key, found)])
    return figures


def show(figures: Figures, names: list[str], console: Console) -> None:
    """Print a row per broker, with the ratio of both kinds."""
    table = Table(title=f"Spark streams, {SIZE} B: {os.cpu_count()} cores, {machine()}")
    table.add_column("M records/s; CPU µs/record")
    for name in (*KINDS, "speed", "CPU"):
        table.add_column(name, justify="right")
    for name in names:
        exact, plain = (figures[name, kind] for kind in KINDS)
        cells = [f"{one.rate:.2f}; {one.cpu_us:.2f}" for one in (exact, plain)]
        cells += [f"{exact.rate / plain.rate:.2f}x", f"{exact.cpu_us / plain.cpu_us:.2f}x"]
        table.add_row(name, *cells)
    console.print(table)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_load(parser)
    parser.add_argument("--brokers", default="barnabas,kafka")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    console = new_console()
    with contextlib.ExitStack() as stack:
        running = []
        for name in installed(options.brokers, console):
            broker = stack.enter_context(brokers.running(name))
            given = parse_sink_options({"kafka.bootstrap.servers": broker.address})
            if not is_transactional(given, default=True):
                console.print(f"  {name} is not measured: it has no transactions", style="yellow")
                continue
            loads.create_topic(broker, TOPIC)
            loads.produce(broker, TOPIC, SIZE, SIZE * options.records)
            running.append(broker)
        if not running:
            return
        spark = make_session()
        figures = measure(spark, running, options, console)
        spark.stop()
    show(figures, [broker.name for broker in running], console)
    write_figures(options.json, {", ".join(key): asdict(figure) for key, figure in figures.items()})


if __name__ == "__main__":
    main()
