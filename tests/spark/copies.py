"""Copies of a topic to another one that tests disturb, and the records of a reader afterwards."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.client.facade import Client
from spark.late_workers import worker_was_late
from spark.queries import to_the_end
from spark.stopping_sink import StoppingSink, StopPoint
from waiting import eventually

# Rows of the topic to copy, and its partitions: as many tasks write a batch.
RECORDS, PARTITIONS = 600, 3


class Copy:
    """A query that copies a topic to another in two batches, and that tests run repeatedly."""

    def __init__(self, read: DataFrame, out: str, directory: Path, bootstrap: str) -> None:
        self.point = StopPoint(str(directory))
        self._writer = (
            read.selectExpr("key", "value")
            .writeStream.format(StoppingSink.name())
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", out)
            .option("stopDirectory", str(directory))
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(availableNow=True)
        )

    def start(self) -> StreamingQuery:
        return self._writer.start()

    def stop_at(self, step: str) -> StreamingQuery:
        """Start the query, and return it when one of its processes has stopped at the step."""
        self.point.request(step)
        query = self.start()

        def has_stopped() -> bool:
            nonlocal query
            if worker_was_late(query.exception()):
                query = self.start()
            return self.point.stopped() != 0

        eventually(has_stopped, lambda: f"{query.exception()}")
        return query

    def finish(self) -> None:
        to_the_end(self._writer.start)


def copy_of(spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> Copy:
    """Return a copy of a topic that `write_records` filled, to the topic `<topic>-out`."""
    source = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS // 2)
        .load()
    )
    return Copy(source, f"{topic}-out", directory, bootstrap)


def write_records(client: Client, topic: str, replicas: int = 1) -> None:
    """Write the records to copy, and create the topic `<topic>-out`."""
    client.create_topic(f"{topic}-out", 2, replicas)
    with client.producer() as producer:
        for partition in range(PARTITIONS):
            values = [value for value in each_row_once() if value.startswith(b"%d-" % partition)]
            producer.send_batch(topic, [(None, value, [], None) for value in values], partition)


def each_row_once() -> Counter[bytes]:
    """What `write_records` wrote."""
    return Counter(
        b"%d-%d" % (partition, i)
        for partition in range(PARTITIONS)
        for i in range(RECORDS // PARTITIONS)
    )


def committed_values(client: Client, read: Callable[..., DataFrame], topic: str) -> Counter[bytes]:
    """Values that a read_committed reader sees once no transaction is open."""
    places = dict.fromkeys([(topic, 0), (topic, 1)], "latest")

    def ends(level: str) -> object:
        return client.list_offsets(places, isolation_level=level)

    eventually(lambda: ends("read_committed") == ends("read_uncommitted"), "open transactions")
    frame = read(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    return Counter(row.value for row in frame.select("value").collect())


def await_end(query: StreamingQuery) -> None:
    """Wait until the query ends, with or without an error."""
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination()
