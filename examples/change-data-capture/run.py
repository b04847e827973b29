"""`make cdc`: PostgreSQL, Debezium on Kafka Connect, Barnabas and Spark, and at the end a check.

Random transactions change the source tables while Connect and the Spark job are killed (kill -9)
and the schema changes. Exit status 0: the Delta tables equal the source tables, row by row.
1: they differ. 2: a step failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import airline
import check
import freshness
from barnabas import Client
from barnabas.testing.broker_process import BrokerProcess
from connect import ConnectWorker, fetch_jars, topic_of
from postgres import Postgres
from processes import ExampleError, Process, renew, wait_until
from workload import Workload

HERE = Path(__file__).parent
# Pause between transactions: other programs need the processor too.
PAUSE_SECONDS = 0.03
# Time limit for the last changes, or the snapshot, to come through.
SECONDS_MAX = 300
# The check reads all changes again.
TOPIC_CONFIG = {"retention.ms": "-1"}


class Run:
    """The processes of one run."""

    def __init__(self, output: Path, server: Postgres, broker: BrokerProcess) -> None:
        self.output = output
        self.tables = output / "tables"
        self._logs = output / "logs"
        self._server = server
        self._broker = broker
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        print(f"{time.monotonic() - self._started:6.1f} s  {text}", flush=True)

    def start(self) -> None:
        """Start Connect and the Spark job, which need some seconds each."""
        with Client(self._broker.bootstrap) as client:
            for name in airline.TABLES:
                # One partition: the order of a table's changes is that of PostgreSQL's log.
                client.create_topic(topic_of(name), 1, 1, TOPIC_CONFIG)
        self._start_connect()
        self._start_job()

    def load(self, days: int) -> int:
        """Fill the source tables; return the number of captured rows."""
        airline.load(self._server, days, days)
        counts = [f"(SELECT count(*) FROM {name})" for name in airline.TABLES]
        return int(self._server.run(f"SELECT {' + '.join(counts)}"))

    def snapshot(self, rows: int) -> None:
        """Create the connector and wait until all rows are in the Delta tables."""
        self._connect.await_started()
        self.say("Kafka Connect runs; the connector begins with a snapshot")
        began = time.monotonic()
        self._connect.capture(self._server, list(airline.TABLES))
        self._connect.await_running()
        wait_until(
            lambda: check.count_rows(self.tables) == rows,
            f"the Delta tables have {rows} rows",
            SECONDS_MAX,
            self._connect.process,
            self._job,
        )
        rate = rows / (time.monotonic() - began)
        self.say(f"the snapshot is in the Delta tables: {rows:,} rows, {rate:,.0f} rows/s")

    def change(self, seconds: float, seed: int) -> None:
        """Run random transactions; kill Connect, change the schema and kill the job meanwhile."""
        workload = Workload(self._server, seed)
        events: list[tuple[float, Callable[[], None]]] = [
            (0.1, lambda: self._kill_connect(workload)),
            (0.3, workload.rename_large_airline),
            (0.4, workload.load_airfields),
            (0.5, workload.change_schema),
            (0.6, self._kill_job),
            (0.7, workload.replace_airports),
            (0.8, workload.change_schema_again),
        ]
        self.say(f"random transactions for {seconds:.0f} s, seed {seed}")
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds or events:
            if events and elapsed > events[0][0] * seconds:
                _, event = events.pop(0)
                event()
            workload.step()
            self._check()
            time.sleep(PAUSE_SECONDS)
        workload.close()
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(workload.done.items()))
        self.say(f"{workload.done.total():,} transactions committed: {kinds}")

    def await_equal(self) -> None:
        """Wait until the tables are equal, or the time is over."""
        deadline = time.monotonic() + SECONDS_MAX
        while check.differences(self._server, self.tables):
            self._check()
            if time.monotonic() > deadline:
                return
            time.sleep(0.5)

    def _check(self) -> None:
        self._connect.process.check()
        self._job.check()

    def stop(self) -> None:
        """Stop Connect and the job; what they had begun is finished or undone."""
        self._connect.process.stop()
        self._job.stop()

    def judge(self) -> int:
        """Compare all rows, report, and return the exit status."""
        problems = check.differences(self._server, self.tables)
        if problems:
            self.say("THE DELTA TABLES DIFFER FROM THE SOURCE TABLES:")
            for problem in problems:
                print(f"          {problem}")
            return 1
        found = freshness.measure(self._broker.bootstrap, self.output)
        self.say(found.report())
        self.say(f"events that Connect sent more than once: {found.repeated}")
        rows = check.count_rows(self.tables)
        tables = len(airline.TABLES)
        self.say(f"equal: {rows:,} rows of {tables} tables, every value; flights by mergeKeys too")
        return 0

    def _start_connect(self) -> None:
        self._connect = ConnectWorker(self._broker.bootstrap, self.output, self._logs)

    def _start_job(self) -> None:
        command = [sys.executable, str(HERE / "job.py"), "--bootstrap", self._broker.bootstrap]
        self._job = Process("job", [*command, "--output", str(self.output)], self._logs)

    def _kill_connect(self, workload: Workload) -> None:
        """Kill the worker while rows change, but no primary key.

        A change of a key, and COPY, are several events at one position in PostgreSQL's log. If a
        kill parts them, Debezium 2.7.4 and 3.6.1 lose the rest: debezium/dbz#1554.
        """
        workload.is_calm = True
        position = self._server.run("SELECT pg_current_wal_lsn()").strip()
        confirmed = f"SELECT confirmed_flush_lsn >= '{position}' FROM pg_replication_slots"

        def is_confirmed() -> bool:
            workload.step()
            return self._server.run(confirmed).strip() == "t"

        wait_until(is_confirmed, "Connect has confirmed changes", SECONDS_MAX, self._job)
        self._connect.process.kill()
        workload.is_calm = False
        self.say("kill -9 of Kafka Connect; a new worker starts")
        self._start_connect()

    def _kill_job(self) -> None:
        self._job.kill()
        self.say("kill -9 of the Spark job; it starts again")
        self._start_job()


def run(output: Path, seconds: float, days: int, seed: int) -> int:
    """Run the example; return the exit status."""
    renew(output)
    logs = output / "logs"
    logs.mkdir()
    fetch_jars()
    with Postgres(logs) as server, BrokerProcess(output / "broker") as broker:
        example = Run(output, server, broker)
        example.say("PostgreSQL and the broker run")
        example.start()
        try:
            rows = example.load(days)
            example.say(f"the source tables have {rows:,} rows")
            example.snapshot(rows)
            example.change(seconds, seed)
            example.await_equal()
        finally:
            example.stop()
        return example.judge()


def main() -> None:
    """Command line: how much, how long, and where."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("cdc-output"))
    parser.add_argument("--seconds", type=float, default=50, help="of random transactions")
    parser.add_argument("--days", type=int, default=20, help="of flights in the source table")
    parser.add_argument("--seed", type=int, default=1, help="of the random transactions")
    options = parser.parse_args()
    # Leave no process behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status = run(options.output.resolve(), options.seconds, options.days, options.seed)
    except ExampleError as error:
        print(error, file=sys.stderr)
        status = 2
    sys.exit(status)


if __name__ == "__main__":
    main()
