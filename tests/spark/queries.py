"""Queries that tests run with either connector, `barnabas` or Spark's own `kafka`."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery


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
        query = (
            self.frame(topic, **options)
            .writeStream.format("parquet")
            .option("path", str(self._directory / "out"))
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

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
