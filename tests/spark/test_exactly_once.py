"""Exactly once into Parquet: a job that is killed again and again, no row twice or missing.

It is the death of processes that this shows, not the loss of power.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client.facade import Client

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = Path(__file__).with_name("job_to_parquet.py")
RECORDS = 100_000
KILLS = 4


def start(bootstrap: str, topic: str, directory: Path) -> subprocess.Popen[str]:
    with (directory / "job.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(JOB), bootstrap, topic, str(directory)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def kill_after(process: subprocess.Popen[str], seconds: float) -> bool:
    """Kill the job's whole process group some time after its query started; False if it ended."""
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "started"
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def test_no_row_is_missing_or_twice_after_kills(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    with client.producer() as producer:
        producer.send_batch(topic, [(b"%d" % i, b"v%d" % i, [], None) for i in range(RECORDS)])
    seed = time.time_ns()
    chance = random.Random(seed)
    killed = 0
    while killed < KILLS:
        process = start(bootstrap, topic, tmp_path)
        if not kill_after(process, chance.uniform(1.5, 5.0)):
            break
        killed += 1
    last = start(bootstrap, topic, tmp_path)
    output, _ = last.communicate(timeout=200)
    assert output.split() == ["started", "finished"], (tmp_path / "job.log").read_text()[-5000:]
    assert killed, f"the job was done before its first kill (seed {seed})"
    written = spark.read.parquet(str(tmp_path / "out")).selectExpr("partition", "offset", "value")
    source = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
        .selectExpr("partition", "offset", "value")
    )
    assert written.count() == RECORDS, f"seed {seed}, {killed} kills"
    assert written.exceptAll(source).count() == 0
    assert source.exceptAll(written).count() == 0
