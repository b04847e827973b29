"""Exactly once into Parquet: a job is killed repeatedly, and no row is duplicate or missing.

This shows the death of processes, not a power loss.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client.facade import Client
from spark.killed_job import FOREVER, KILLS, TO_THE_END, Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = Path(__file__).with_name("job_to_parquet.py")
# 10 batches of the job.
RECORDS = 50_000


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.nightly
def test_no_row_is_missing_or_duplicate_after_kills(
    kills: tuple[int, ...],
    spark: SparkSession,
    client: Client,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
) -> None:
    with client.producer() as producer:
        producer.send_batch(topic, [(b"%d" % i, b"v%d" % i, [], None) for i in range(RECORDS)])
    seed = time.time_ns()
    chance = random.Random(seed)
    print("seed", seed)
    for batches in kills:
        with Job(JOB, bootstrap, topic, tmp_path, FOREVER) as job:
            job.run_on(batches, chance.uniform(0, 0.8 if batches else 4))
    with Job(JOB, bootstrap, topic, tmp_path, TO_THE_END) as job:
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
