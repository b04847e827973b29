"""`make late`: a broker, late events of real flights, a Spark job, kill -9 and a check.

Exit status 0 means that the two topics hold, row for row, what plain Python computes from the same
events; 1 that they differ; 2 that something did not run.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from barnabas import Client, Consumer, Producer
from barnabas.client.fetch.record_set import ConsumerRecord
from examples.flights.demo import committed_end
from examples.flights.processes import DemoError, Process, batches
from examples.late_events import network
from examples.late_events.job import EVENTS_PER_TRIGGER
from examples.late_events.network import Row
from examples.output_directory import renew

PARTITIONS = 3
RESULTS = [(network.LEGS, 0), (network.TOO_LATE, 0)]
PIECES = 100
# The job is killed when a reader sees so much of the rows.
KILL_AT = 0.4
# A slow machine makes some progress; no progress for this time is a failure.
SECONDS_WITHOUT_NEWS_MAX = 420


class Results:
    """What a reader of committed transactions has seen in the two topics."""

    def __init__(self) -> None:
        self.rows: Counter[Row] = Counter()
        # When each row of a flight that landed was seen, in ms.
        self.landed_ms: dict[str, int] = {}

    def add(self, record: ConsumerRecord) -> None:
        """Note a record at the time at which it is seen."""
        flight, fields = (record.key or b"").decode(), json.loads(record.value or b"{}")
        times = fields.get("departure"), fields.get("arrival")
        self.rows[record.topic, flight, fields["outcome"], *times] += 1
        if fields["outcome"] == "landed":
            self.landed_ms.setdefault(flight, int(time.time() * 1000))


class Run:
    """One run: the processes, and how far each has come."""

    def __init__(self, output: Path, days: int, every: int, seconds: float) -> None:
        self.output, self.every, self.seconds = output, every, seconds
        self.events = network.events(days, every)
        self.expected = network.expected(self.events)
        self.results = Results()
        # When the first copy of each event that is not too late was sent, in ms.
        self.sent_ms: dict[tuple[str, str], int] = {}
        # Events in finished batches, and rows that Spark dropped.
        self.done = self.dropped = 0
        self.killed = False

    def run(self) -> float:
        """Start everything, and kill the job on the way.

        Returns: the seconds from the first event to the last row.
        """
        renew(self.output)
        data = str(self.output / "broker")
        self.broker = self._start(
            "broker", "barnabas.cli.main", "start", "--port=0", "--data-dir", data
        )
        try:
            self.bootstrap = self.broker.lines.get(timeout=60).split()[1]
            with Client(self.bootstrap) as client:
                client.create_topic("events", PARTITIONS, 1)
                for name, partition in RESULTS:
                    client.create_topic(name, partition + 1, 1)
            say(f"broker ready on {self.bootstrap}, {len(self.events):,} events to send")
            return self._job_and_producer()
        except queue.Empty:
            raise DemoError("the broker was not ready within a minute") from None
        finally:
            self.broker.stop()

    def _start(self, name: str, *words: str) -> Process:
        return Process(name, [sys.executable, "-m", *words], self.output)

    def _start_job(self) -> None:
        words = ["--bootstrap", self.bootstrap, "--output", str(self.output)]
        words += ["--limit", str(EVENTS_PER_TRIGGER // self.every)]
        self.job = self._start("job", "examples.late_events.job", *words)

    def _job_and_producer(self) -> float:
        config = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        self._start_job()
        try:
            self._await_start()
            started = time.monotonic()
            with (
                ThreadPoolExecutor(1) as pool,
                Consumer(bootstrap_servers=self.bootstrap, **config) as consumer,
            ):
                consumer.assign(RESULTS)
                self._follow(consumer, pool.submit(self._produce))
                self._read_rest(consumer)
        finally:
            self.job.stop()
        return time.monotonic() - started

    def _await_start(self) -> None:
        """Wait for the job's first line: Spark's start is no delay of events."""
        deadline = time.monotonic() + SECONDS_WITHOUT_NEWS_MAX
        while self.job.lines.empty():
            self.job.check()
            if time.monotonic() > deadline:
                raise DemoError(f"Spark has not started; logs: {self.output}")
            time.sleep(0.1)
        say("Spark has started")

    def _produce(self) -> None:
        """Send the events in the network's order, spread over the seconds."""
        step = -(-len(self.events) // PIECES)
        started = time.monotonic()
        with Producer(self.bootstrap, enable_idempotence=True, linger_ms=5) as producer:
            for piece in range(PIECES):
                for event in self.events[piece * step : (piece + 1) * step]:
                    if event.known_ms < event.scheduled_ms + network.SETTLED_MS:
                        now_ms = int(time.time() * 1000)
                        self.sent_ms.setdefault((event.flight, event.kind), now_ms)
                    producer.send("events", event.value(), key=event.flight.encode())
                producer.flush()
                due = started + self.seconds * (piece + 1) / PIECES
                time.sleep(max(0.0, due - time.monotonic()))

    def _follow(self, consumer: Consumer, sending: Future[None]) -> None:
        news_at, closed = time.monotonic(), False
        while self.job.exit_status() is None:
            self.job.check()
            self.broker.check()
            if sending.done():
                sending.result()
            for record in consumer.poll(0.2):
                self.results.add(record)
            news_at = time.monotonic() if self._note_batches() else news_at
            if time.monotonic() - news_at > SECONDS_WITHOUT_NEWS_MAX:
                raise DemoError(f"no batch for {SECONDS_WITHOUT_NEWS_MAX} s; logs: {self.output}")
            if not self.killed and self.results.rows.total() > KILL_AT * self.expected.total():
                self._kill()
            if not closed and self.done >= len(self.events):
                # Not before: a partition may be read further than the others.
                closed = True
                close(self.bootstrap)
        self.job.check()
        self._note_batches()
        if not self.killed:
            raise DemoError("the job ended before it could be killed")

    def _note_batches(self) -> bool:
        news = batches(self.job)
        for batch in news:
            self.done = max(self.done, int(str(batch["events"])))
            self.dropped += int(str(batch["dropped"]))
            say(
                f"batch {batch['batch']:>3}: {self.done:>7,} events read, watermark "
                f"{str(batch['watermark'])[:13]}h, {batch['state']:,} entries of state, "
                f"{self._seen():,} rows out"
            )
        return bool(news)

    def _seen(self) -> int:
        return self.results.rows.total()

    def _kill(self) -> None:
        """Kill the job when rows have just become visible, and start it again.

        Spark is about to note their batch as done, or has begun the next one.
        """
        self.killed = True
        self.job.kill()
        say(f"kill -9 of the Spark job, {self._seen():,} rows out; starting it again")
        self._start_job()

    def _read_rest(self, consumer: Consumer) -> None:
        with Client(self.bootstrap, isolation_level="read_committed") as client:
            ends = {place: committed_end(client, place) for place in RESULTS}
        while any(consumer.position(place) < end for place, end in ends.items()):
            for record in consumer.poll(0.2):
                self.results.add(record)

    def delays(self) -> list[float]:
        """Return for each flight that landed the seconds from its second event to its row."""
        return [
            (seen_ms - max(self.sent_ms[flight, "departure"], self.sent_ms[flight, "arrival"]))
            / 1000
            for flight, seen_ms in self.results.landed_ms.items()
            if (flight, "departure") in self.sent_ms and (flight, "arrival") in self.sent_ms
        ]


def close(bootstrap: str) -> None:
    """Send the closing event to each partition."""
    with Producer(bootstrap) as producer:
        for partition in range(PARTITIONS):
            producer.send("events", network.closing_event().value(), key=b"", partition=partition)
        producer.flush()


def differences(actual: Counter[Row], expected: Counter[Row]) -> list[str]:
    """Return a line for each row that is missing or not expected, the first few of each."""
    problems = []
    for name, rows in (("missing", expected - actual), ("not expected", actual - expected)):
        if rows:
            problems.append(f"{rows.total():,} rows are {name}:")
            problems += [
                f"  {row} ({count} times)" for row, count in sorted(rows.items(), key=str)[:5]
            ]
    return problems


def judge(run: Run, seconds: float) -> int:
    """Compare the rows with the direct computation, and report; return the exit status."""
    problems = differences(run.results.rows, run.expected)
    if run.dropped:
        problems.append(f"Spark dropped {run.dropped:,} rows behind the watermark")
    if problems:
        print("CHECK FAILED: the topics differ from the direct computation:", *problems, sep="\n")
        return 1
    outcomes: Counter[str] = Counter()
    for row, count in run.expected.items():
        outcomes[row[2]] += count
    delays = run.delays()
    print(", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common()))
    print(f"{len(run.events) / seconds:,.0f} events/s with the job's restart ({seconds:.0f} s)")
    print(
        f"from a flight's second event to its row: median {statistics.median(delays):.1f} s,"
        f" worst {max(delays):.1f} s (over the restart)"
    )
    print("CHECK PASSED: every row is there, and none twice.")
    return 0


def say(what: str) -> None:
    """Print a line of progress with the time."""
    print(time.strftime("%H:%M:%S"), what, flush=True)


def main() -> None:
    """Command line: how much data and how long it shall take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("demo-output/late-events"))
    parser.add_argument("--days", type=int, default=21, help="days of flights")
    parser.add_argument("--every", type=int, default=1, help="take each N-th flight only")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long the events take")
    options = parser.parse_args()
    # A terminated run stops its broker and its job too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run = Run(options.output.resolve(), options.days, options.every, options.seconds)
        status = judge(run, run.run())
    except DemoError as error:
        print(error)
        status = 2
    sys.exit(status)


if __name__ == "__main__":
    main()
