"""Exactly once into Parquet: a job that is killed again and again, no row twice or missing.

It is the death of processes that this shows, not the loss of power.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest
from pyspark.sql import SparkSession

from barnabas.client.facade import Client

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = Path(__file__).with_name("job_to_parquet.py")
# 20 batches of the job.
RECORDS = 100_000
BATCHES_BEFORE_KILL = (0, 1, 4)
TIMEOUT_S = 100


class Job:
    """One life of the job, in a process group of its own."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        self._commits = directory / "checkpoint" / "commits"
        self._log = directory / "job.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(JOB), bootstrap, topic, str(directory)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def committed(self) -> int:
        """Batches that the checkpoint has as done."""
        return sum(path.name.isdigit() for path in self._commits.glob("*"))

    def run_on(self, batches: int, seconds: float) -> None:
        """Let so many more batches be done, then wait into the middle of another."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "started\n", self.log()
        goal = self.committed() + batches
        deadline = time.monotonic() + TIMEOUT_S
        while self._process.poll() is None and self.committed() < goal:
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.01)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        assert self._process.poll() is None, f"it ended before its kill\n{self.log()}"

    def finish(self) -> None:
        """Let it come to its end."""
        output, _ = self._process.communicate(timeout=TIMEOUT_S)
        assert output.split() == ["started", "finished"], self.log()

    def log(self) -> str:
        """The end of what its lives have written."""
        return self._log.read_text()[-10_000:]


def test_no_row_is_missing_or_twice_after_kills(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    with client.producer() as producer:
        producer.send_batch(topic, [(b"%d" % i, b"v%d" % i, [], None) for i in range(RECORDS)])
    seed = time.time_ns()
    chance = random.Random(seed)
    print("seed", seed)
    # At any point of the first batch, in which all is set up, and in later ones.
    for batches in BATCHES_BEFORE_KILL:
        with Job(bootstrap, topic, tmp_path) as job:
            job.run_on(batches, chance.uniform(0, 0.8 if batches else 4))
    with Job(bootstrap, topic, tmp_path) as job:
        job.finish()
    written = spark.read.parquet(str(tmp_path / "out")).selectExpr("partition", "offset", "value")
    source = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
        .selectExpr("partition", "offset", "value")
    )
    assert written.count() == RECORDS
    assert written.exceptAll(source).count() == 0
    assert source.exceptAll(written).count() == 0
