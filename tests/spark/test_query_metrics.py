"""Metrics of queries for Prometheus, from queries that Spark runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.cli.top.metrics import fetch_metrics
from barnabas.spark.metrics import SessionMetrics, serve_metrics
from barnabas.spark.query_progress import count_written
from spark.queries import to_the_end
from waiting import eventually

pytestmark = pytest.mark.spark

Fill = Callable[[str, int, list[tuple[bytes | None, bytes | None]]], None]


def value(metrics: SessionMetrics, name: str, **labels: str) -> float | None:
    """Return a metric of a query; None if it is missing."""
    found = fetch_metrics(metrics.address).get(f"barnabas_query_{name}", {})
    return found.get(tuple(sorted(labels.items())))


def source(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 60)
        .load()
    )


def test_a_query_has_rows_lag_state_and_watermark(
    spark: SparkSession, bootstrap: str, fill: Fill, topic: str, tmp_path: Path
) -> None:
    fill(topic, 0, [(None, b"%d" % i) for i in range(100)])
    fill(topic, 1, [(None, b"%d" % i) for i in range(20)])
    records = source(spark, bootstrap, topic).withWatermark("timestamp", "1 second")
    rows = count_written(records.dropDuplicatesWithinWatermark(["value"]))
    numbers = itertools.count()
    with serve_metrics(spark, port=0) as metrics:

        def start() -> StreamingQuery:
            name = f"copy-{next(numbers)}"
            return (
                rows.writeStream.queryName(name)
                .option("checkpointLocation", str(tmp_path / name))
                .format("noop")
                .trigger(availableNow=True)
                .start()
            )

        query = to_the_end(start)
        name = query.name
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
        assert read == 120
        # Spark reports events in another thread.
        eventually(lambda: value(metrics, "running", query=name) == 0, "the end of the query")
        assert value(metrics, "rows_read_total", query=name) == 120
        # The values 0 to 19 are in both partitions.
        assert value(metrics, "rows_written_total", query=name) == 100
        for partition in ("0", "1", "2"):
            assert value(metrics, "lag", query=name, topic=topic, partition=partition) == 0
        assert (value(metrics, "state_rows", query=name) or 0) > 0
        # The test gives its last record the time 1,099 ms.
        watermark = value(metrics, "watermark_timestamp_seconds", query=name)
        assert watermark == pytest.approx(0.099)
        assert (value(metrics, "phase_seconds_total", query=name, phase="addBatch") or 0) > 0
        assert value(metrics, "starts_total", query=name) == 1
        assert value(metrics, "failures_total", query=name) == 0


def test_a_query_that_fails_counts_a_failure(
    spark: SparkSession, bootstrap: str, fill: Fill, topic: str, tmp_path: Path
) -> None:
    fill(topic, 0, [(None, b"no number")])
    rows = source(spark, bootstrap, topic).selectExpr("assert_true(false)")
    with serve_metrics(spark, port=0) as metrics:
        query = (
            rows.writeStream.queryName("broken")
            .option("checkpointLocation", str(tmp_path))
            .format("noop")
            .trigger(availableNow=True)
            .start()
        )
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()
        eventually(lambda: value(metrics, "failures_total", query="broken") == 1, "the failure")
        assert value(metrics, "running", query="broken") == 0
