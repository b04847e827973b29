"""Metrics of queries for Prometheus, from queries that Spark runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from barnabas.cli.load.metrics import fetch_metrics
from barnabas.spark.metrics import SessionMetrics, serve_metrics
from documents.blocks import sections_of
from spark.queries import with_python
from waiting import eventually

pytestmark = pytest.mark.spark

Fill = Callable[[str, int, list[tuple[bytes | None, bytes | None]]], None]


def value(metrics: SessionMetrics, name: str, **labels: str) -> float | None:
    """Return a metric of a query; None if it is missing."""
    found = fetch_metrics(metrics.address).get(f"barnabas_query_{name}", {})
    return found.get(tuple(sorted(labels.items())))


def read(spark: SparkSession, bootstrap: str, topic: str, connector: str) -> DataFrame:
    return (
        spark.readStream.format(connector)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 60)
        .load()
    )


@pytest.fixture(params=["barnabas", "kafka"])
def source(request: pytest.FixtureRequest) -> str:
    """The name of a connector."""
    if request.param == "kafka":
        request.getfixturevalue("connector")
    return str(request.param)


def program(directory: Path) -> str:
    """Return the example of docs/spark.md, with its paths in a directory and on a free port."""
    [found] = [
        block.text
        for section in sections_of("docs/spark.md")
        for block in section.blocks
        if block.checked_by == "tests/spark/test_query_metrics.py"
    ]
    assert "port=9309" in found
    return found.replace("port=9309", "port=0").replace("/data", str(directory))


def test_a_query_as_on_the_page_has_rows_lag_state_and_watermark(
    spark: SparkSession,
    bootstrap: str,
    fill: Fill,
    topic: str,
    tmp_path: Path,
    source: str,
) -> None:
    fill(topic, 0, [(None, b"%d" % i) for i in range(100)])
    fill(topic, 1, [(None, b"%d" % i) for i in range(20)])
    records = read(spark, bootstrap, topic, source).withWatermark("timestamp", "1 second")
    events = records.dropDuplicatesWithinWatermark(["value"])
    attempts = itertools.count()

    def run() -> SessionMetrics:
        names: dict[str, Any] = {"spark": spark, "events": events}
        exec(program(tmp_path / str(next(attempts))), names)
        try:
            names["query"].processAllAvailable()
        except StreamingQueryException:
            names["metrics"].close()
            raise
        finally:
            names["query"].stop()
        metrics: SessionMetrics = names["metrics"]
        return metrics

    with with_python(run) as metrics:
        # Spark reports events in another thread.
        eventually(lambda: value(metrics, "running", query="copy") == 0, "the end of the query")
        assert value(metrics, "rows_read_total", query="copy") == 120
        # The values 0 to 19 are in both partitions.
        assert value(metrics, "rows_written_total", query="copy") == 100
        for partition in ("0", "1", "2"):
            assert value(metrics, "lag", query="copy", topic=topic, partition=partition) == 0
        assert (value(metrics, "state_rows", query="copy") or 0) > 0
        # The newest record has the time 1,099 ms.
        watermark = value(metrics, "watermark_timestamp_seconds", query="copy")
        assert watermark == pytest.approx(0.099)
        assert (value(metrics, "phase_seconds_total", query="copy", phase="addBatch") or 0) > 0
        assert value(metrics, "starts_total", query="copy") == 1
        assert value(metrics, "failures_total", query="copy") == 0


def test_a_query_that_fails_counts_a_failure(
    spark: SparkSession, bootstrap: str, fill: Fill, topic: str, tmp_path: Path
) -> None:
    fill(topic, 0, [(None, b"no number")])
    rows = read(spark, bootstrap, topic, "barnabas").selectExpr("assert_true(false)")
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
