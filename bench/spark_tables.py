"""Streams from a topic into tables of Delta and Iceberg, and into Parquet files for comparison.

The sinks take turns in each run, so that noise affects all. The first run is a warm-up, and the
least processor time of the others counts. It is that of all of Spark's processes, Java and Python,
with the read of the topic. Commits are part of it, compaction is not.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bench import brokers, loads
from bench.brokers import Broker
from bench.report import machine, new_console, write_figures
from bench.spark_read import SIZE, Figure, best_of, cpu_seconds
from bench.spark_write import add_load, make_session, topic_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "spark-tables"
SINKS = {"Delta": "barnabas_delta", "Iceberg": "barnabas_iceberg", "Parquet": "parquet"}


def write(spark: SparkSession, broker: Broker, sink: str, records: int, per_batch: int) -> Figure:
    """Write the topic to a new table with a new query."""
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as directory:
        options, target = {}, f"{directory}/table"
        if sink == "Iceberg":
            options = {
                "catalog.uri": f"sqlite:///{directory}/catalog.db",
                "catalog.warehouse": f"{directory}/warehouse",
            }
            target = "lake.flights"
        cpu, started = cpu_seconds(), time.perf_counter()
        query = (
            topic_stream(spark, broker, TOPIC, per_batch)
            .writeStream.format(SINKS[sink])
            .options(**options)
            .option("checkpointLocation", f"{directory}/checkpoint")
            .trigger(availableNow=True)
            .start(target)
        )
        query.awaitTermination()
        seconds, used = time.perf_counter() - started, cpu_seconds() - cpu
    return Figure(records / 1e6 / seconds, used * 1e6 / records)


def measure(
    spark: SparkSession, broker: Broker, options: argparse.Namespace, console: Console
) -> dict[str, Figure]:
    """Run every sink; return the best figures."""
    figures: dict[str, Figure] = {}
    for run, sink in itertools.product(range(options.runs + 1), SINKS):
        found = write(spark, broker, sink, options.records, options.per_batch)
        console.print(f"  run {run}: {sink}: {found.rate:.2f}, {found.cpu_us:.2f} µs")
        # The first warms up.
        if run:
            figures[sink] = best_of([found, figures.get(sink, found)])
    return figures


def show(figures: dict[str, Figure], console: Console) -> None:
    """Print a row per sink."""
    table = Table(title=f"Spark streams into tables: {os.cpu_count()} cores, {machine()}")
    for name in ("sink", "M records/s", "CPU µs/record"):
        table.add_column(name, justify="left" if name == "sink" else "right")
    for sink, figure in figures.items():
        table.add_row(sink, f"{figure.rate:.2f}", f"{figure.cpu_us:.2f}")
    console.print(table)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_load(parser)
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    console = new_console()
    with brokers.running("barnabas") as broker:
        loads.create_topic(broker, TOPIC)
        loads.produce(broker, TOPIC, SIZE, SIZE * options.records)
        spark = make_session()
        figures = measure(spark, broker, options, console)
        spark.stop()
    show(figures, console)
    write_figures(options.json, {sink: asdict(figure) for sink, figure in figures.items()})


if __name__ == "__main__":
    main()
