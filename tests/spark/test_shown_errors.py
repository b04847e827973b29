"""The first lines of what a user sees of an error: the message, and no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.queries import Stream, save

pytestmark = pytest.mark.spark

Read = Callable[..., DataFrame]


def first_lines(run: Callable[[], object]) -> str:
    """Return the first two lines of the error: Spark begins those of tasks with its own line."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the kinds are Spark's
        run()
    text = str(caught.value)
    assert "Traceback" not in text.partition("=== Streaming Query ===")[0]
    return " ".join(text.splitlines()[:2])


def test_errors_of_reads_begin_with_their_message(read: Read, topic: str) -> None:
    wrong = first_lines(lambda: read(subscribe=topic, failOnDataLoss="maybe"))
    assert "failOnDataLoss='maybe' is neither true nor false" in wrong
    missing = first_lines(lambda: read(subscribe=f"{topic}-none").count())
    assert f"{topic}-none: UNKNOWN_TOPIC_OR_PARTITION (no such topic" in missing
    given = f'{{"{topic}":{{"0":0,"1":0}}}}'
    planned = first_lines(lambda: read(subscribe=topic, startingOffsets=given).count())
    assert f"startingOffsets does not name {topic}-2" in planned


def test_errors_of_streams_begin_with_their_message(
    spark: SparkSession, bootstrap: str, tmp_path: Path, topic: str
) -> None:
    stream = Stream(spark, bootstrap, tmp_path)
    wrong = first_lines(lambda: stream.run(topic, endingOffsets="latest"))
    assert "endingOffsets is for spark.read; a stream has no end" in wrong
    missing = first_lines(lambda: stream.run(f"{topic}-none"))
    assert f"{topic}-none: UNKNOWN_TOPIC_OR_PARTITION (no such topic" in missing


def test_errors_of_writes_begin_with_their_message(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    rows = spark.range(1).selectExpr("cast(id as string) value", "cast(null as string) topic")
    refused = first_lines(lambda: save(rows.select("value"), bootstrap))
    assert "no topic to write to: set the option 'topic'" in refused
    in_a_task = first_lines(lambda: save(rows, bootstrap))
    assert "a row has no topic: its column 'topic' is null" in in_a_task
