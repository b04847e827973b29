"""`make flights`: a broker, a year of real departures, a declared pipeline, kill -9 and a check.

`barnabas pipeline run` shows its flows while it runs. Exit status 0 means that all tables and the
topic hold, row for row, what pandas computes from the data set; 1 that one differs; 2 that
something did not run.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from barnabas import Client
from barnabas.spark.pipelines.checkpoints import read_checkpoints, read_notes
from barnabas.spark.pipelines.project import load_project
from examples.flights import events, produce
from examples.flights.processes import DemoError, Process
from examples.flights_declared import check
from examples.output_directory import renew

DEFINITIONS = Path(__file__).with_name("datasets.py")
# Airports have a partition each.
TOPICS = {"flights": len(events.AIRPORTS), "weather": len(events.AIRPORTS), "alerts": 1}
# The records bear the times of 2013, which a week of retention would delete at once.
KEPT = {"retention.ms": "-1"}
# The pipeline is killed when it has read so much.
KILL_AT = 0.4
# A slow machine makes some progress; no progress for this time is a failure.
SECONDS_WITHOUT_NEWS_MAX = 420
# The round that reads the closing events, and one that finds nothing more.
LAST_ROUNDS = 2


class Run:
    """One run: the broker, the project, and how far the pipeline has come."""

    def __init__(self, output: Path, seconds: float) -> None:
        self.output, self.seconds = output, seconds
        self.project = output / "flights"
        closing = set(events.closing_events())
        # Topic and event, without the closing events.
        self.year = [pair for pair in produce.in_order() if pair[1] not in closing]
        # `departures` and `hours` read the same topic.
        self.reads = sum(1 if topic == "weather" else 2 for topic, _ in self.year)
        self.kills = 0

    def run(self) -> list[str]:
        """Start everything, kill the pipeline on the way, and compare.

        Returns: a line for each table or topic that differs from the data set.
        """
        renew(self.output)
        with self._broker() as self.bootstrap:
            prepare(self.bootstrap, self.project)
            with ThreadPoolExecutor(1) as pool:
                self._run_pipeline(pool.submit(self._produce))
            finish(self.bootstrap, "status", "--project", str(self.project))
            return check.problems(self.project, self.bootstrap)

    @contextmanager
    def _broker(self) -> Iterator[str]:
        words = ["start", "--port=0", "--data-dir", str(self.output / "broker")]
        broker = Process("broker", [sys.executable, "-m", "barnabas", *words], self.output)
        try:
            yield broker.lines.get(timeout=60).split()[1]
        except queue.Empty:
            raise DemoError("the broker was not ready within a minute") from None
        finally:
            broker.stop()

    def _start_pipeline(self) -> None:
        words = ["run", "--project", str(self.project), "--every", "1s", "--master", "local[2]"]
        self.pipeline = start(self.bootstrap, *words)

    def _produce(self) -> None:
        with produce.new_producer(self.bootstrap) as producer:
            produce.send_steadily(producer, self.year, self.seconds)

    def _run_pipeline(self, sending: Future[None]) -> None:
        """Run the pipeline until it has read everything; kill it on the way."""
        self._start_pipeline()
        try:
            self._wait(lambda: self.read() > KILL_AT * self.reads, sending)
            self._kill()
            self._wait(lambda: self.read() == self.reads, sending)
            # Not before: a partition may be read further than the others, and a closing event
            # moves the watermark past the year.
            with produce.new_producer(self.bootstrap) as producer:
                produce.send(producer, [("flights", event) for event in events.closing_events()])
            for _ in range(LAST_ROUNDS):
                ended_ms = self.ended_ms()
                self._wait(lambda before=ended_ms: self.ended_ms() != before, sending)
        finally:
            self.pipeline.send_signal(signal.SIGINT)
            self.pipeline.wait()

    def _wait(self, condition: Callable[[], bool], sending: Future[None]) -> None:
        """Wait while the pipeline makes progress."""
        news, news_at = (-1, 0), time.monotonic()
        while not condition():
            if self.pipeline.poll() is not None:
                raise DemoError("the pipeline has ended; its last lines say why")
            if sending.done():
                sending.result()
            if news != (seen := (self.read(), self.ended_ms())):
                news, news_at = seen, time.monotonic()
            elif time.monotonic() - news_at > SECONDS_WITHOUT_NEWS_MAX:
                raise DemoError(f"the pipeline read nothing for {SECONDS_WITHOUT_NEWS_MAX} s")
            time.sleep(0.2)

    def _kill(self) -> None:
        """Kill the command; Spark's processes end with it."""
        self.pipeline.kill()
        self.pipeline.wait()
        self.kills += 1
        print(f"\nkill -9 of the pipeline after {self.read() / self.reads:.0%} of the records")
        self._start_pipeline()

    def read(self) -> int:
        """Return how many records all flows together have read in finished batches."""
        checkpoints = read_checkpoints(load_project(self.project))
        return sum(sum(each.topic_offsets.values()) for each in checkpoints)

    def ended_ms(self) -> int:
        """Return when the last round ended, ms since 1970; 0 before the first."""
        notes = read_notes(load_project(self.project).notes)
        return int(notes.last_run.get("ended_ms", 0))


def prepare(bootstrap: str, project: Path) -> None:
    """Create the topics, and the project with the definitions of the example."""
    with Client(bootstrap) as client:
        for name, partitions in TOPICS.items():
            client.create_topic(name, partitions, 1, KEPT)
    finish(bootstrap, "init", str(project), "--topic", "flights")
    shutil.copyfile(DEFINITIONS, project / "transformations" / DEFINITIONS.name)


def start(bootstrap: str, *words: str) -> subprocess.Popen[bytes]:
    """Start `barnabas pipeline`, which writes to this terminal."""
    print("$ barnabas pipeline", *words, flush=True)
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas", "pipeline", *words],
        env={**os.environ, "BARNABAS_BOOTSTRAP": bootstrap},
    )


def finish(bootstrap: str, *words: str) -> None:
    """Run `barnabas pipeline` to its end."""
    if start(bootstrap, *words).wait():
        raise DemoError(f"barnabas pipeline {words[0]} failed")


def judge(run: Run) -> int:
    """Run, report what differs, and return the exit status."""
    problems = run.run()
    if problems:
        print("CHECK FAILED: what the pipeline wrote differs from the data set:")
        print(*(f"  {problem}" for problem in problems), sep="\n")
        return 1
    print(f"  the Delta tables   {run.project / 'lake'}")
    print("  the definitions    examples/flights_declared/datasets.py")
    print("CHECK PASSED: every row of every table is there, and none twice.")
    return 0


def main() -> None:
    """Command line: where the output goes and how long the year shall take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("demo-output/flights-declared"))
    parser.add_argument("--seconds", type=float, default=40.0, help="how long the events take")
    options = parser.parse_args()
    # A terminated run stops its broker and its pipeline too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    try:
        status = judge(Run(options.output.resolve(), options.seconds))
    except DemoError as error:
        print(error)
        status = 2
    print(f"finished in {time.monotonic() - started:.0f} s")
    sys.exit(status)


if __name__ == "__main__":
    main()
