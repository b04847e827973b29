"""Records of a topic and rows of a frame, written to a table of either kind."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from barnabas.client.facade import Client
from spark.queries import to_the_end
from spark.tables import SinkTable


def fill(client: Client, topic: str, first: int, end: int) -> None:
    """Send records with the values "v<first>" up to "v<end - 1>"."""
    with client.producer() as producer:
        producer.send_batch(topic, [(b"%d" % i, b"v%d" % i, [], None) for i in range(first, end)])


def read_topic(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Return a stream of the topic, from its start."""
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def stream(frame: DataFrame, table: SinkTable, mode: str = "append", /, **options: str) -> None:
    """Write all that a stream has now; the checkpoint is beside the table."""
    writer = (
        frame.writeStream.format(table.sink)
        .outputMode(mode)
        .options(**table.options)
        .option("checkpointLocation", str(checkpoint_of(table)))
        .options(**options)
        .trigger(availableNow=True)
    )
    to_the_end(lambda: writer.start(table.target))


def values_and(frame: DataFrame, column: str = "partition") -> DataFrame:
    """Return the values of records as text, and one more column."""
    return frame.selectExpr("cast(value as string) as value", column)


def write(frame: DataFrame, table: SinkTable, mode: str = "append", /, **options: str) -> None:
    """Write a frame that is no stream."""
    writer = frame.write.format(table.sink).mode(mode).options(**(table.options | options))
    writer.save(table.target)


def values(table: SinkTable) -> list[str]:
    """Return the column `value` of all rows, sorted."""
    return sorted(each["value"] for each in table.rows())


def checkpoint_of(table: SinkTable) -> Path:
    return table.directory / "checkpoint"


def forget(table: SinkTable, batch: int, folder: str = "commits") -> None:
    """Remove a batch from the checkpoint.

    Without its commit, it is as if Spark had been killed behind the table's commit and before its
    own.
    """
    for name in (f"{batch}", f".{batch}.crc"):
        (checkpoint_of(table) / folder / name).unlink()
