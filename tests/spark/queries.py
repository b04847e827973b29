"""Queries that tests run with either connector, `barnabas` or Spark's own `kafka`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark.late_workers import worker_was_late
from waiting import eventually

T = TypeVar("T")


def with_python(run: Callable[[], T]) -> T:
    """Return the result of `run`; repeat it while Spark gives up a Python process too early."""
    results: list[T] = []

    def is_done() -> bool:
        try:
            results.append(run())
        except StreamingQueryException as error:
            if not worker_was_late(error):
                raise
            return False
        return True

    eventually(is_done, "Spark starts no Python process")
    return results[0]


def to_the_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query that ends by itself, and return it at its end."""

    def ended() -> StreamingQuery:
        query = start()
        query.awaitTermination()
        return query

    return with_python(ended)


def rows_of_stream(frame: DataFrame, name: str) -> list[Row]:
    """Return all rows of a stream; they stay in a table with the name, in which `-` is `_`."""
    table = name.replace("-", "_")
    writer = frame.writeStream.format("memory").queryName(table).trigger(availableNow=True)
    to_the_end(writer.start)
    return frame.sparkSession.table(table).collect()


def caught_up(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query that goes on, and return it when it has read all records."""

    def read() -> StreamingQuery:
        query = start()
        query.processAllAvailable()
        return query

    return with_python(read)


class Stream:
    """A query from a topic to Parquet, run until it has caught up, again and again."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, directory: Path, source: str = "barnabas"
    ) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._directory = directory
        # The name of the source; may change between runs.
        self.source = source

    def frame(self, topic: str, **options: object) -> DataFrame:
        return (
            self._spark.readStream.format(self.source)
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", topic)
            .options(**({"startingOffsets": "earliest"} | options))
            .load()
        )

    def run(self, topic: str, **options: object) -> StreamingQuery:
        writer = (
            self.frame(topic, **options)
            .writeStream.format("parquet")
            .option("path", str(self._directory / "out"))
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(availableNow=True)
        )
        return to_the_end(writer.start)

    def offsets(self) -> list[tuple[int, int]]:
        rows = self._spark.read.parquet(str(self._directory / "out"))
        return sorted((r.partition, r.offset) for r in rows.select("partition", "offset").collect())


def save(frame: DataFrame, bootstrap: str, sink: str = "barnabas", **options: str) -> None:
    """Write rows to topics."""
    (
        frame.write.format(sink)
        .mode("append")
        .option("kafka.bootstrap.servers", bootstrap)
        .options(**options)
        .save()
    )
