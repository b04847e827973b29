"""The declared pipeline of `examples/flights_declared`: speed, processor time and freshness.

Speed: one `barnabas pipeline run` reads topics that hold the data set. The time begins with the
first flow, so that Spark's start is a figure of its own. A row is a record of the topics; each
passes several flows.

Freshness: the pipeline runs again and again, and flights are sent at a steady rate. It is the time
from the send of a record to the commit of its row in the Delta table `lake/departures`, three
steps further: topic, table `departures`, Delta table.

Processor time is that of the command and all processes below it: Java and Python.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from barnabas import Client
from bench import brokers
from bench.brokers import Broker
from bench.report import machine, new_console, write_figures
from examples.flights import events, produce
from examples.flights_declared import run

SAMPLE_S = 0.2
# How often the table is looked at, which is a part of the freshness.
POLL_S = 0.02
TAIL_S_MAX = 600


@dataclass(frozen=True)
class Speed:
    """One run over topics that hold the data set."""

    rows: int
    start_s: float
    run_s: float
    cpu_s: float

    @property
    def cells(self) -> dict[str, str]:
        """Names and values of the report."""
        return {
            "records in the topics": f"{self.rows:,}",
            "start of Spark, to the first flow, s": f"{self.start_s:.1f}",
            "records/s from then on": f"{self.rows / self.run_s:,.0f}",
            "CPU µs/record": f"{self.cpu_s * 1e6 / self.rows:.0f}",
        }


@dataclass(frozen=True)
class Freshness:
    """Many rounds over records that arrive at a steady rate."""

    rows: int
    rate: int
    rounds: int
    round_s: float
    p50_s: float
    p99_s: float
    cpu_s: float

    @property
    def cells(self) -> dict[str, str]:
        """Names and values of the report."""
        return {
            f"at {self.rate:,} records/s: from send to row, p50 / p99, s": (
                f"{self.p50_s:.1f} / {self.p99_s:.1f}"
            ),
            "length of a round, median of all, s": f"{self.round_s:.1f} ({self.rounds})",
            "CPU µs/record of it": f"{self.cpu_s * 1e6 / self.rows:.0f}",
        }


class PipelineProcess:
    """`barnabas pipeline run --json` with its events, and the processor time of its processes."""

    def __init__(self, bootstrap: str, project: Path, *words: str) -> None:
        command = [sys.executable, "-m", "barnabas", "pipeline", "run", "--json"]
        self._process = subprocess.Popen(
            [*command, "--project", str(project), "--master", "local[2]", *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "BARNABAS_BOOTSTRAP": bootstrap},
        )
        # By id and start of a process: what it has used when it was last seen.
        self._used: dict[tuple[int, float], float] = {}
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events until the command ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):
                yield json.loads(line)

    def cpu_seconds(self) -> float:
        """Return the processor time of all processes so far."""
        return sum(self._used.values())

    def stop(self) -> None:
        """End the command as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        self._ended.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            with suppress(psutil.NoSuchProcess):
                root = psutil.Process(self._process.pid)
                for one in (root, *root.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess):
                        times = one.cpu_times()
                        self._used[one.pid, one.create_time()] = times.user + times.system


@contextmanager
def project_of(broker: Broker) -> Iterator[Path]:
    """Create the topics and the project; at the end, remove both."""
    with tempfile.TemporaryDirectory(prefix="bench-pipelines-") as place:
        project = Path(place, "flights")
        run.prepare(broker.address, project)
        yield project
    with Client(broker.address) as client:
        client.delete_topics(run.TOPICS)


def measure_speed(broker: Broker, records: int) -> Speed:
    """Let one run read topics that hold the data set."""
    pairs = list(itertools.islice(produce.in_order(), records))
    with project_of(broker) as project:
        with produce.new_producer(broker.address) as producer:
            produce.send(producer, pairs)
        started, first, cpu = time.perf_counter(), 0.0, 0.0
        pipeline = PipelineProcess(broker.address, project)
        try:
            for event in pipeline.events():
                if event["event"] == "flow" and event["state"] == "running" and not first:
                    first, cpu = time.perf_counter(), pipeline.cpu_seconds()
                if event["event"] in ("problem", "ended"):
                    ended, used, last = time.perf_counter(), pipeline.cpu_seconds(), event
        finally:
            pipeline.stop()
        if last.get("result") != "completed":
            raise SystemExit(f"the run failed: {last}")
    return Speed(len(pairs), first - started, ended - first, used - cpu)


def measure_freshness(broker: Broker, rate: int, seconds: float, every: str) -> Freshness:
    """Send records at a steady rate while the pipeline runs again and again."""
    with project_of(broker) as project:
        pipeline = PipelineProcess(broker.address, project, "--every", every)
        ends: list[float] = []

        def follow() -> None:
            ends.extend(
                time.perf_counter() for each in pipeline.events() if each["event"] == "ended"
            )

        following = threading.Thread(target=follow)
        following.start()
        try:
            delays = Delays(project / "lake" / "departures" / "_delta_log")
            rows = int(rate * seconds)
            await_rounds(ends, 1)
            # The first rows are a warm-up: Python workers start, and the table is created.
            send_now(broker, rate, 1)
            await_rounds(ends, len(ends) + 2)
            delays.poll()
            delays.seconds.clear()
            cpu, before = pipeline.cpu_seconds(), len(ends)
            sender = threading.Thread(target=send_now, args=(broker, rate, seconds))
            sender.start()
            deadline = time.perf_counter() + seconds + TAIL_S_MAX
            while len(delays.seconds) < rows:
                delays.poll()
                if time.perf_counter() > deadline:
                    raise SystemExit(f"{len(delays.seconds)} of {rows} rows arrived")
                time.sleep(POLL_S)
            used = pipeline.cpu_seconds() - cpu
            sender.join()
        finally:
            pipeline.stop()
            following.join()
    lengths = [after - at for at, after in itertools.pairwise(ends[before - 1 :])]
    quantiles = statistics.quantiles(delays.seconds, n=100, method="inclusive")
    return Freshness(
        rows, rate, len(lengths), statistics.median(lengths), quantiles[49], quantiles[98], used
    )


def await_rounds(ends: list[float], count: int) -> None:
    """Wait until so many rounds have ended."""
    deadline = time.perf_counter() + TAIL_S_MAX
    while len(ends) < count:
        if time.perf_counter() > deadline:
            raise SystemExit(f"{len(ends)} rounds of {count} after {TAIL_S_MAX} s")
        time.sleep(POLL_S)


class Delays:
    """The time from the send of a record to its row, for each row that the table's log adds."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._version = 0
        self.seconds: list[float] = []

    def poll(self) -> None:
        """Read the commits that are new."""
        while (commit := self._log / f"{self._version:020}.json").exists():
            now_ms = time.time() * 1000
            self._version += 1
            for line in commit.read_text().splitlines():
                if (added := json.loads(line).get("add")) is not None:
                    table = pq.read_table(self._log.parent / added["path"], columns=["known"])
                    known = table["known"].cast(pa.timestamp("ms", "UTC")).cast("int64").to_pylist()
                    self.seconds += [(now_ms - sent_ms) / 1000 for sent_ms in known]


def send_now(broker: Broker, rate: int, seconds: float) -> None:
    """Send flights with the time of their send, a tenth of a second's at once."""
    # As a list: making the first event takes seconds, which would delay the others.
    flights = itertools.cycle(list(itertools.islice(events.flight_events(), 10_000)))
    started = time.perf_counter()
    with produce.new_producer(broker.address) as producer:
        for piece in range(int(seconds * 10)):
            for event in itertools.islice(flights, rate // 10):
                producer.send("flights", event.value, key=event.key, partition=event.partition)
            producer.flush()
            time.sleep(max(0.0, started + (piece + 1) / 10 - time.perf_counter()))


def show(figures: list[Speed | Freshness], console: Console) -> None:
    """Print a row per figure."""
    table = Table(title=f"Declared pipeline: {os.cpu_count()} cores, {machine()}")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for figure in figures:
        for name, value in figure.cells.items():
            table.add_row(name, value)
    console.print(table)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=int, default=400_000, help="of the topics, at most")
    parser.add_argument("--rate", type=int, default=1000, help="records/s for the freshness")
    parser.add_argument("--seconds", type=float, default=60, help="how long they are sent")
    parser.add_argument("--every", default="1s", help="pause between two rounds")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    console = new_console()
    with brokers.running("barnabas") as broker:
        speed = measure_speed(broker, options.records)
        console.print(f"  {speed}")
        fresh = measure_freshness(broker, options.rate, options.seconds, options.every)
    load = os.getloadavg()[1]
    show([speed, fresh], console)
    console.print(f"  load of the machine over five minutes: {load:.1f}")
    figures = {"speed": asdict(speed), "freshness": asdict(fresh), "load": load}
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
