"""Queries that tests run with either connector, `barnabas` or Spark's own `kafka`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from waiting import eventually


def to_the_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that has come to its end.

    Started again where Spark gave up a Python process before it had begun: it waits ten seconds,
    which no setting changes, and a busy machine takes longer.
    """

    def ended() -> StreamingQuery | None:
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
            return None
        return query

    return eventually(ended, "Spark starts no Python")


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
