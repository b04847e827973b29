"""`make demo`: three brokers, a year of real flights, a Spark pipeline, kill -9 and a proof.

Everything runs on this machine and stays in `demo-output/flights`. Exit status 0 means that the
table which the pipeline wrote is, row for row, what pandas computes from the data set; 1 that it
differs; 2 that something did not run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from barnabas import Client
from barnabas.spark.topics.options import parse_sink_options
from barnabas.spark.topics.writer import is_transactional
from examples.flights import connector, events, processes, proof, report
from examples.flights.cluster import DemoCluster
from examples.flights.processes import DemoError
from examples.output_directory import renew

TOPICS = {"flights": len(events.AIRPORTS), "weather": len(events.AIRPORTS), "alerts": 1}
# The records bear the times of 2013, which a week of retention would delete at once.
KEPT = {"retention.ms": "-1", "min.insync.replicas": "2"}
REPLICAS = 3
KILL_BROKER_AT = 0.25
# Two brokers are enough for the cluster at this point.
BROKER_BACK_AT = 0.4
KILL_PIPELINE_AT = 0.55
# A slow machine makes some progress; no progress for this time is a failure.
SECONDS_WITHOUT_NEWS_MAX = 420
# Time limit for the markers of the last transactions after the pipeline's end.
SECONDS_FOR_ENDS_MAX = 30


class Demo:
    """One run: the processes, and how far each has come."""

    def __init__(self, output: Path, seconds: float, console: Console, jars: str) -> None:
        self.output = output
        # Jars of Spark's own connector; empty for the Barnabas source and sink.
        self.jars = jars
        self.logs = output / "logs"
        self.cluster = DemoCluster(output / "cluster")
        # The killed broker that has not been restarted.
        self.lost: int | None = None
        self.seconds = seconds
        self.console = console
        self.total = len(events.flights()) + len(events.AIRPORTS)
        self.done = 0
        self.late = 0
        self.kills: list[str] = []

    def run(self) -> None:
        """Starts everything, kills the broker and the pipeline on the way, waits for the end."""
        renew(self.output)
        self.logs.mkdir()
        self.bootstrap = self.cluster.start()
        self.console.print(f"three brokers ready on {self.bootstrap}")
        self._create_topics()
        self._start_pipeline()
        self.producer = processes.start_producer(self.logs, self.bootstrap, self.seconds)
        try:
            with self._progress() as progress:
                self._follow(progress)
        finally:
            for process in (self.producer, self.pipeline):
                process.stop()

    def _start_pipeline(self) -> None:
        self.pipeline = processes.start_pipeline(self.logs, self.bootstrap, self.output, self.jars)

    def _create_topics(self) -> None:
        with Client(self.bootstrap) as client:
            for name, partitions in TOPICS.items():
                client.create_topic(name, partitions, REPLICAS, KEPT)

    def _progress(self) -> Progress:
        return Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
        )

    def _follow(self, progress: Progress) -> None:
        task = progress.add_task("flights through the pipeline", total=self.total)
        heard_at, heard = time.monotonic(), -1
        while self.pipeline.exit_status() is None:
            for process in (self.producer, self.pipeline):
                process.check()
            self._note_batches()
            if self.done > heard:
                heard_at, heard = time.monotonic(), self.done
            elif time.monotonic() - heard_at > SECONDS_WITHOUT_NEWS_MAX:
                silence = f"nothing has come through for {SECONDS_WITHOUT_NEWS_MAX} s"
                raise DemoError(f"{silence}; the logs are in {self.logs}")
            progress.update(task, completed=self.done)
            if not self.kills and self.done > KILL_BROKER_AT * self.total:
                self._kill_broker()
            elif self.lost is not None and self.done > BROKER_BACK_AT * self.total:
                self._bring_back(self.lost)
            elif len(self.kills) == 1 and self.done > KILL_PIPELINE_AT * self.total:
                self._kill_pipeline()
            time.sleep(0.2)
        self.pipeline.check()
        self._note_batches()
        progress.update(task, completed=self.done)
        if len(self.kills) != 2:
            raise DemoError("the pipeline ended before broker and pipeline could be killed")

    def _note_batches(self) -> None:
        for batch in processes.batches(self.pipeline):
            self.done = min(self.total, max(self.done, int(str(batch["flights"]))))
            self.late += int(str(batch["late"]))

    def _kill_broker(self) -> None:
        self.lost = self.cluster.kill_leader("flights", 0)
        self._report(f"kill -9 of broker {self.lost}, a leader, after {self.done:,} flights")

    def _bring_back(self, node: int) -> None:
        self.cluster.start_again(node)
        self.lost = None
        self.console.print(f"broker {node} is back and in sync after {self.done:,} flights")

    def _kill_pipeline(self) -> None:
        self.pipeline.kill()
        self._report(f"kill -9 of the pipeline after {self.done:,} flights")
        self._start_pipeline()

    def _report(self, what: str) -> None:
        self.kills.append(what)
        self.console.print(f"[bold red]{what}[/bold red]")


def committed_end(client: Client, place: tuple[str, int]) -> int:
    """Return the end of a partition when no transaction is open; the last one may end late."""
    deadline = time.monotonic() + SECONDS_FOR_ENDS_MAX
    while True:
        stable = client.list_offsets({place: "latest"})[place].offset
        end = client.list_offsets({place: "latest"}, isolation_level="read_uncommitted")
        if end[place].offset == stable:
            return stable
        if time.monotonic() > deadline:
            raise DemoError(f"a transaction in {place[0]} is still open")
        time.sleep(0.1)


def writes_exactly_once(demo: Demo) -> bool:
    """Whether the alerts were written in transactions: by our sink, on brokers that have them."""
    if demo.jars:
        return False
    options = parse_sink_options({"kafka.bootstrap.servers": demo.bootstrap})
    return is_transactional(options, default=True)


def alert_keys(bootstrap: str) -> Counter[str]:
    """Count each alert as a reader of committed transactions sees it."""
    with Client(bootstrap, isolation_level="read_committed") as client:
        alerts = ("alerts", 0)
        end = committed_end(client, alerts)
        with client.stream({alerts: (0, end)}) as stream:
            return Counter((record.key or b"").decode() for record in stream.records())


def judge(demo: Demo) -> int:
    """Compares table and alerts with the direct computation, reports; returns the exit status."""
    console = demo.console
    with console.status("computing the table directly from the data set"):
        expected = proof.expected_hours()
    actual = proof.read_table(demo.output / "airport_hours")
    problems = proof.differences(actual, expected)
    alerts = alert_keys(demo.bootstrap)
    wanted = proof.expected_alerts(expected)
    if set(alerts) != wanted:
        missing, extra = len(wanted - set(alerts)), len(set(alerts) - wanted)
        problems.append(f"the alerts topic lacks {missing} alerts and has {extra} unexpected ones")
    if demo.late:
        problems.append(f"{demo.late} rows came later than the watermark and were dropped")
    again = alerts.total() - len(alerts)
    exactly_once = writes_exactly_once(demo)
    if exactly_once and again:
        problems.append(f"{again} alerts are in the topic more than once")
    repeated = "none twice" if exactly_once else f"{again} sent again after the kill"
    facts = {
        "kills": "; ".join(demo.kills),
        "airport hours": f"{len(actual):,} of {len(expected):,}, none twice",
        "flights counted": f"{actual['flights'].sum():,} of {len(events.flights()):,}",
        "alerts": f"{len(alerts):,} of {len(wanted):,} ({repeated})",
    }
    if problems:
        console.print("[bold red]The table differs from the data set:[/bold red]")
        for problem in problems:
            console.print(f"  {problem}")
        return 1
    report.summary(console, actual, facts)
    report.plot(actual, demo.output / "airport_hours.png")
    console.print("\n[bold green]Every row accounted for, none twice.[/bold green]")
    return 0


def further(demo: Demo) -> None:
    """Print how to look at the remaining files."""
    first = demo.bootstrap.split(",")[0]
    demo.console.print(
        f"""
  the plot                 {demo.output / "airport_hours.png"}
  the table                spark.read.parquet("{demo.output / "airport_hours"}")
  the brokers              .venv/bin/barnabas cluster start --directory {demo.cluster.directory}
  the topics               .venv/bin/barnabas consume alerts --from beginning -e -b {first}
  the code                 examples/flights/pipeline.py""",
        highlight=False,
        soft_wrap=True,
    )


def show(demo: Demo) -> int:
    """Runs the demo, judges it and leaves nothing running; returns the exit status."""
    try:
        demo.run()
        status = judge(demo)
        further(demo)
    finally:
        demo.cluster.stop()
    return status


def main() -> None:
    """Command line: where the output goes and how long the year shall take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("demo-output/flights"))
    parser.add_argument("--seconds", type=float, default=50.0, help="how long the events take")
    parser.add_argument(
        "--format",
        choices=("barnabas", "kafka"),
        default="barnabas",
        help="kafka: Spark's own connector, which Maven fetches",
    )
    options = parser.parse_args()
    console = Console()
    started = time.monotonic()
    try:
        jars = connector.fetch_jars() if options.format == "kafka" else ""
        status = show(Demo(options.output.resolve(), options.seconds, console, jars))
    except DemoError as error:
        console.print(error, style="bold red", markup=False)
        status = 2
    console.print(f"\nfinished in {time.monotonic() - started:.0f} s")
    sys.exit(status)


if __name__ == "__main__":
    main()
