"""Runs `barnabas pipeline` for tests, and reads what a pipeline wrote."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from barnabas.client.facade import Client
from barnabas.client.fetch.record_set import read_records
from examples.flights.proof import table_files
from waiting import eventually

TIMEOUT_S = 300
COMMAND = (sys.executable, "-m", "barnabas.cli.main", "pipeline")


class Pipeline:
    """A project in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.definitions = directory / "transformations" / "datasets.py"
        self.storage = directory / "storage"
        # Of the metrics of a pipeline that is running.
        self.metrics_address = ""

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*COMMAND, *words],
            cwd=self.directory.parent if words[0] == "init" else self.directory,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a run, whose output has its events."""
        return subprocess.Popen(
            [*COMMAND, "run", "--json", "--master", "local[2]", *words],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self) -> list[dict[str, Any]]:
        """Run the pipeline to its end, which must be a good one, and return the events."""
        found: list[dict[str, Any]] = []
        while True:
            with self.start() as started:
                last = list(events(started))
            found += last
            if started.returncode == 0:
                return found
            assert was_late(last), (last, self.log())

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """Run the pipeline every second; the first round has ended well."""
        while True:
            seen = []
            with self.start("--every", "1s", "--metrics", "127.0.0.1:0") as started:
                for event in events(started):
                    seen.append(event)
                    if event["event"] == "metrics":
                        self.metrics_address = event["address"]
                    if event == {"event": "ended", "result": "completed"}:
                        yield started
                        return
            assert was_late(seen), (seen, self.log())

    def replace(self, old: str, new: str) -> None:
        """Change the definitions."""
        text = self.definitions.read_text()
        assert old in text
        self.definitions.write_text(text.replace(old, new))

    def status(self) -> dict[str, Any]:
        """Return what `status` says of the flows, by name."""
        done = self.command("status", "--json")
        assert done.returncode == 0, done.stderr
        return {flow["flow"]: flow for flow in json.loads(done.stdout)["flows"]}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a streaming table."""
        files = table_files(self.storage / "tables" / table)
        return [row for path in files for row in pq.read_table(path).to_pylist()]

    def log(self) -> str:
        """Return what Spark printed in the last run."""
        path = self.storage / "_barnabas" / "run.log"
        return path.read_text()[-4000:] if path.exists() else "no log"


def events(started: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield the events of a run until it ends."""
    assert started.stdout is not None
    for line in started.stdout:
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def was_late(found: list[dict[str, Any]]) -> bool:
    """Return whether a run failed because Python started too slowly on a busy machine.

    Spark waits ten seconds for it (`late_workers`), and tries a flow three times.
    """
    return any("failed to connect back" in str(event) for event in found)


def kill(process_id: int) -> None:
    """Kill a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)


def written(bootstrap: str, topic: str) -> Counter[bytes | None]:
    """Return the values that a read_committed reader sees once no transaction is open."""
    found: Counter[bytes | None] = Counter()
    with Client(bootstrap, **{"isolation.level": "read_committed"}) as client:
        places = [(topic, number) for number in client.partitions_for([topic])[topic]]

        def ends(level: str) -> dict[Any, int]:
            listed = client.list_offsets(dict.fromkeys(places, "latest"), isolation_level=level)
            return {place: each.offset for place, each in listed.items()}

        eventually(lambda: ends("read_committed") == ends("read_uncommitted"), "a transaction")
        for batch in client.fetch_range({p: (0, end) for p, end in ends("read_committed").items()}):
            found.update(record.value for record in read_records(batch))
    return found
