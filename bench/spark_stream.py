"""`make bench`: streams and small queries by `format("barnabas")` and by Spark's Kafka connector.

Both read the same topics on one broker in one session, and take turns; each run begins with the
other one. The first run is a warm-up. The table has the median of the others, in CPU seconds: of
Spark's Java, and of its Python processes by what they do. A goal is met if each run meets it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bench import brokers, loads
from bench.brokers import Broker
from bench.report import machine, new_console, write_figures
from bench.spark_processes import SparkProcesses
from bench.spark_read import FORMATS, make_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession
    from pyspark.sql.streaming import DataStreamReader

# Records of the small topic, and how many a small micro-batch has.
FEW = 2_000
PER_TRIGGER = 100
BATCHES = 4


@dataclass(frozen=True)
class Figure:
    """Cost of a query."""

    seconds: float
    # Processor time in s, by kind of process.
    cpu: Counter[str]
    # Median time of a micro-batch with records, in ms; 0 for a batch query.
    trigger_ms: float = 0.0

    @property
    def cpu_s(self) -> float:
        """Processor time of all processes, s."""
        return sum(self.cpu.values())


@dataclass(frozen=True)
class Load:
    """Reads one topic."""

    name: str
    topic: str
    # Bytes of a record, and records of the topic.
    size: int
    records: int
    # Records of a micro-batch; None for a batch query.
    per_batch: int | None
    sink: str


# By load and format: one figure for each run.
Figures = dict[tuple[str, str], list[Figure]]


def loads_of(records: int) -> list[Load]:
    """Return the loads; topics of 100 B have so many records, those of 1 KB 40 % of them."""
    large = records * 2 // 5
    return [
        Load(f"{FEW // PER_TRIGGER} triggers", "spark-few", 100, FEW, PER_TRIGGER, "noop"),
        Load(f"batch of {FEW:,}", "spark-few", 100, FEW, None, "noop"),
        Load("stream, 100 B", "spark-100", 100, records, records // BATCHES, "parquet"),
        Load("batch, 100 B", "spark-100", 100, records, None, "parquet"),
        Load("stream, 1 KB", "spark-1000", 1000, large, large // BATCHES, "parquet"),
        Load("batch, 1 KB", "spark-1000", 1000, large, None, "parquet"),
        Load("batch, 1 KB, noop", "spark-1000", 1000, large, None, "noop"),
    ]


class Bench:
    """Runs loads in a session, with one broker."""

    def __init__(self, spark: SparkSession, broker: Broker, processes: SparkProcesses) -> None:
        self._spark = spark
        self._broker = broker
        self._processes = processes

    def run(self, load: Load, source: str) -> Figure:
        """Run one query."""
        query = self._batch if load.per_batch is None else self._stream
        with tempfile.TemporaryDirectory(prefix="bench-spark-") as directory:
            return self._timed(lambda: query(load, source, directory))

    def _timed(self, query: Callable[[], float]) -> Figure:
        before, started = self._processes.cpu_seconds(), time.perf_counter()
        trigger_ms = query()
        seconds = time.perf_counter() - started
        # Workers collect their garbage after they have reported the end of a task.
        time.sleep(0.2)
        return Figure(seconds, self._processes.cpu_seconds() - before, trigger_ms)

    def _options(self, load: Load) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._broker.address, "subscribe": load.topic}

    def _batch(self, load: Load, source: str, directory: str) -> float:
        reader: DataFrameReader = self._spark.read.format(source).options(**self._options(load))
        reader.load().write.format(load.sink).mode("overwrite").save(f"{directory}/table")
        return 0.0

    def _stream(self, load: Load, source: str, directory: str) -> float:
        """Return the median time of a micro-batch in ms."""
        reader: DataStreamReader = self._spark.readStream.format(source)
        query = (
            reader.options(**self._options(load))
            .options(startingOffsets="earliest", maxOffsetsPerTrigger=load.per_batch)
            .load()
            .writeStream.format(load.sink)
            # `noop` takes the path and ignores it.
            .options(path=f"{directory}/table", checkpointLocation=f"{directory}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        read = sum(each["numInputRows"] for each in batches)
        if read != load.records:
            raise SystemExit(f"{source} read {read} records of {load.topic}, not {load.records}")
        return statistics.median(each["durationMs"]["triggerExecution"] for each in batches)


def measure(bench: Bench, chosen: list[Load], runs: int, console: Console) -> Figures:
    """Run every load with every format."""
    figures: Figures = {}
    for run, load in itertools.product(range(runs + 1), chosen):
        for source in FORMATS if run % 2 else FORMATS[::-1]:
            found = bench.run(load, source)
            console.print(f"  run {run}: {load.name}, {source}: {found.cpu_s:.2f} s of CPU")
            # The first run is a warm-up.
            if run:
                figures.setdefault((load.name, source), []).append(found)
    return figures


def show(figures: Figures, chosen: list[Load], name: str, console: Console) -> None:
    """Print a row for each load, and one for the time of a trigger."""
    table = Table(title=f"Spark on {name}, CPU s: {os.cpu_count()} cores, {machine()}")
    for column in ("load", "barnabas", "kafka", "ratio", "worst", "barnabas by process"):
        table.add_column(column, justify="right" if column in ("ratio", "worst") else "left")
    for load in chosen:
        ours, theirs = (figures[load.name, source] for source in FORMATS)
        ratios = [own.cpu_s / other.cpu_s for own, other in zip(ours, theirs, strict=True)]
        own, other = (statistics.median(each.cpu_s for each in runs) for runs in (ours, theirs))
        cells = [f"{own:.2f}", f"{other:.2f}", f"{own / other:.2f}x", f"{max(ratios):.2f}x"]
        kinds = ", ".join(f"{kind} {used:.2f}" for kind, used in by_kind(ours).items())
        table.add_row(load.name, *cells, kinds)
        if load.topic == "spark-few" and load.per_batch is not None:
            times = [statistics.median(each.trigger_ms for each in runs) for runs in (ours, theirs)]
            table.add_row("one trigger, ms", *(f"{each:.0f}" for each in times))
    console.print(table)


def by_kind(runs: list[Figure]) -> dict[str, float]:
    """Return the median processor time of each kind of process, the largest first."""
    kinds = {kind for each in runs for kind in each.cpu}
    medians = {kind: statistics.median(each.cpu[kind] for each in runs) for kind in kinds}
    return dict(sorted(medians.items(), key=lambda item: -item[1]))


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000, help="records of 100 bytes")
    parser.add_argument("--runs", type=int, default=3, help="number of runs after the warm-up")
    parser.add_argument("--broker", default="barnabas", help="barnabas or kafka")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    console = new_console()
    if missing := brokers.missing_for("kafka"):
        console.print(f"  Spark's Kafka connector needs: {missing}", style="yellow")
        return
    chosen = loads_of(options.records)
    with brokers.running(options.broker) as broker, SparkProcesses() as processes:
        for load in {each.topic: each for each in chosen}.values():
            loads.create_topic(broker, load.topic)
            loads.produce(broker, load.topic, load.size, load.size * load.records)
        spark = make_session()
        # Java logs the stop of each query.
        spark.sparkContext.setLogLevel("OFF")
        figures = measure(Bench(spark, broker, processes), chosen, options.runs, console)
        spark.stop()
    show(figures, chosen, options.broker, console)
    written = {
        ", ".join(key): [{"cpu": dict(each.cpu), "trigger_ms": each.trigger_ms} for each in runs]
        for key, runs in figures.items()
    }
    write_figures(options.json, written)


if __name__ == "__main__":
    main()
