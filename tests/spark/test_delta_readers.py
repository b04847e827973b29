"""Spark's Delta jar reads the tables of `format("barnabas_delta")`, with their partitions.

`tests/unit/spark/delta/test_table_partitions.py` has the readers without a JVM.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, unix_micros

from jvm.maven import class_path
from spark.partitioned_delta import SCHEMA, TEXTS, rows, write

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def delta_spark(spark: SparkSession) -> SparkSession:
    """A session that has Delta's jars, beside the one that the other tests share."""
    jars = class_path("spark-delta").split(os.pathsep)
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    # A session cannot add Delta's extensions of SQL later; without them the reader works too.
    session.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    session.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    for jar in jars:
        session.sql(f"ADD JAR '{jar}'")
    return session


def micros(time: dt.datetime | None) -> int | None:
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return None if time is None else (time - epoch) // dt.timedelta(microseconds=1)


def test_sparks_delta_finds_each_row_by_its_partition(
    delta_spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, rows())
    frame = delta_spark.read.format("delta").load(str(tmp_path))
    assert set(frame.columns) == set(SCHEMA.names)
    # `collect` returns times of the machine's zone.
    by_id = frame.withColumn("at", unix_micros("at")).orderBy("id").collect()
    assert [row.asDict() for row in by_id] == [row | {"at": micros(row["at"])} for row in rows()]
    wanted = [text for text in TEXTS if text is not None]
    filtered = frame.where(col("text").isin(wanted[:8]) | col("text").eqNullSafe(lit(None)))
    assert {row.id for row in filtered.collect()} == {*range(8), len(TEXTS) - 1}
