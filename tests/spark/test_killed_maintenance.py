"""`barnabas tables` killed at random moments, beside a writer that commits batches."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.tables.commits import BatchIdentity
from spark.delta_tables import Writer as DeltaWriter
from spark.iceberg_tables import SCHEMA, Writer, named, stored_files
from spark.tables import SinkTable
from waiting import eventually

# Batches before the first command.
BATCHES = 20
# The shortest pause between batches, and the shortest as a multiple of the last commit's time. In
# shorter pauses, a command on a slow machine would never finish its own commit.
PAUSE_S, PAUSE_COMMITS = 0.2, 5
SEEDS = [1, pytest.param(2, marks=pytest.mark.nightly), pytest.param(3, marks=pytest.mark.nightly)]


def batch_writer(table: SinkTable) -> Callable[[int], None]:
    """Return a function that commits a batch as the sink does; its row is the batch's number."""
    if table.sink == "barnabas_iceberg":
        iceberg = Writer(named(table.directory))
        return lambda batch: _check(iceberg.write(batch, batch=batch))
    options = DeltaOptions(table.target)

    def write(batch: int) -> None:
        delta = DeltaWriter(options, SCHEMA)
        files = delta.files(pa.record_batch({"id": pa.array([batch]), "kind": ["x"]}))
        _check(delta.commit(files, BatchIdentity("query", batch)))

    return write


def _check(added: bool) -> None:
    assert added


class Writing:
    """Commits a batch after the other in a thread."""

    def __init__(self, write: Callable[[int], None]) -> None:
        self.batches = 0
        self._write = write
        self._end = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(self._run)

    def _run(self) -> None:
        pause_s = PAUSE_S
        while not self._end.wait(pause_s):
            began = time.monotonic()
            self._write(self.batches)
            self.batches += 1
            pause_s = max(PAUSE_S, PAUSE_COMMITS * (time.monotonic() - began))

    def has_written(self, batches: int) -> bool:
        return self._future.done() or self.batches >= batches

    def stop(self) -> None:
        """End the thread; raise its error if it has one."""
        self._end.set()
        self._pool.shutdown()
        self._future.result()


def run(table: SinkTable, *words: str) -> float:
    """Run a command to its end; return the seconds that it took."""
    began = time.monotonic()
    with table.command(*words) as process:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    return time.monotonic() - began


def run_until_killed(table: SinkTable, after_s: float, *words: str) -> None:
    """Run a command, and kill it after so many seconds if it still runs."""
    with table.command(*words) as process:
        try:
            process.communicate(timeout=after_s)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.nightly
def test_killed_commands_lose_and_double_no_row(
    table: SinkTable, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    writing = Writing(batch_writer(table))
    try:
        eventually(lambda: writing.has_written(BATCHES), "no batches")
        took_s = run(table, "compact")
        for _ in range(3):
            run_until_killed(table, chance.uniform(0.3, 1.1) * took_s, "compact")
    finally:
        writing.stop()
    rows = list(range(writing.batches))
    assert sorted(table.arrow()["id"].to_pylist()) == rows
    expire = ("expire", "--older-than", "0s", "--allow-recent", "--execute")
    run_until_killed(table, chance.uniform(0.3, 1.1) * took_s, *expire)
    assert sorted(table.arrow()["id"].to_pylist()) == rows
    run(table, "compact")
    run(table, *expire)
    assert sorted(table.arrow()["id"].to_pylist()) == rows
    if table.sink == "barnabas_iceberg":
        # Delta keeps files that no version named for an hour.
        assert len(stored_files(tmp_path)) == 1
