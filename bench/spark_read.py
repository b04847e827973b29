"""`make bench`, third table: batch reads by Spark, `format("barnabas")` beside Spark's own Kafka
connector in one session, over the same topic on each broker.

The connectors and brokers take turns, run by run, so that noise hits all; the best of the runs
after the first counts, for Java compiles what it has run often.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from barnabas.spark.session import spark_session
from bench import brokers, loads
from bench.brokers import Broker
from bench.run import machine
from examples.flights.connector import fetch_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("barnabas", "kafka")
SINKS = ("noop", "parquet")
TOPIC = "spark-read"
SIZE = 100

# Broker, then sink, then format: millions of records a second.
Rates = dict[str, dict[str, dict[str, float]]]


def make_session() -> SparkSession:
    """A session on two cores that has both connectors."""
    settings = {
        "spark.jars": fetch_jars(),
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
    }
    return spark_session("bench", "local[2]", settings)


def topic_of(spark: SparkSession, broker: Broker, source: str) -> DataFrame:
    """The whole topic, all columns."""
    return (
        spark.read.format(source)
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", TOPIC)
        .load()
    )


def write(frame: DataFrame, sink: str, directory: str) -> float:
    """Reads the frame into a sink; returns the seconds."""
    started = time.perf_counter()
    # Both sinks take a path; `noop` writes none.
    frame.write.format(sink).mode("overwrite").save(str(Path(directory, "table")))
    return time.perf_counter() - started


def measure(
    spark: SparkSession, running: list[Broker], records: int, runs: int, console: Console
) -> Rates:
    """Every format and sink on every broker."""
    frames = {(b.name, source): topic_of(spark, b, source) for b in running for source in FORMATS}
    for (broker, source), frame in frames.items():
        if (found := frame.count()) != records:
            raise SystemExit(f"{source} read {found} records on {broker} instead of {records}")
    rates: Rates = {}
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as directory:
        for run in range(runs + 1):
            for sink in SINKS:
                for (broker, source), frame in frames.items():
                    rate = records / 1e6 / write(frame, sink, directory)
                    console.print(f"  run {run}: {source} to {sink}, {broker}: {rate:.2f}")
                    best = rates.setdefault(broker, {}).setdefault(sink, {}).setdefault(source, 0.0)
                    if run:
                        rates[broker][sink][source] = max(best, rate)
    return rates


def show(rates: Rates, console: Console) -> None:
    """Prints a row a broker and sink, with the ratio of the two."""
    table = Table(title=f"Spark reads, {SIZE} B, M records/s: {os.cpu_count()} cores, {machine()}")
    table.add_column("")
    for name in ('format("barnabas")', 'format("kafka")', "ratio"):
        table.add_column(name, justify="right")
    for broker, sinks in rates.items():
        for sink, by_format in sinks.items():
            ours, theirs = (by_format[source] for source in FORMATS)
            cells = (f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}x")
            table.add_row(f"{broker}, to {sink}", *cells)
    console.print(table)


def main() -> None:
    """Command line: how many records, on which brokers, where to keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2_000_000, help="of 100 bytes")
    parser.add_argument("--runs", type=int, default=4, help="beside the first, which warms up")
    parser.add_argument("--brokers", default="barnabas,kafka")
    parser.add_argument("--json", type=Path, help="file to keep the figures in")
    options = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=150)
    if missing := brokers.missing_for("kafka"):
        console.print(f"  Spark is left out, for its Kafka connector: {missing}", style="yellow")
        return
    with contextlib.ExitStack() as stack:
        names = options.brokers.split(",")
        running = [stack.enter_context(brokers.running(name)) for name in names]
        for broker in running:
            loads.create_topic(broker, TOPIC)
            loads.produce(broker, TOPIC, SIZE, SIZE * options.records)
        spark = make_session()
        rates = measure(spark, running, options.records, options.runs, console)
        spark.stop()
    show(rates, console)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine(), "figures": rates}, indent=1))


if __name__ == "__main__":
    main()
