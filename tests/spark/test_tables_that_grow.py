"""Tables of Delta and Iceberg while a stream writes them: readers, compaction and expiry."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import polars as pl
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.spark.errors import MaintenanceError
from spark.late_workers import worker_was_late
from spark.tables import SinkTable, duckdb_connection
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly]

# Each batch has as many records of each partition.
PER_PARTITION, PARTITIONS, BATCHES = 100, 3, 12
SMALL = 128 << 20
# Of a reader: partition -> rows and last offset.
Seen = dict[int, tuple[int, int]]


def by_duckdb(connection: duckdb.DuckDBPyConnection, table: SinkTable) -> Seen:
    found = connection.sql(
        f'select "partition", count(*), max("offset") from {table.duckdb()} group by all'
    ).fetchall()
    return {partition: (count, last) for partition, count, last in found}


def by_polars(table: SinkTable) -> Seen:
    found = table.polars().group_by("partition").agg(pl.len(), pl.col("offset").max())
    return {partition: (count, last) for partition, count, last in found.collect().iter_rows()}


def whole_batches(seen: Seen) -> int:
    """Return the number of batches; fail if a part of one is missing."""
    counts = {count for count, _ in seen.values()}
    assert len(seen) == PARTITIONS, seen
    assert len(counts) == 1, seen
    assert all(last == count - 1 for count, last in seen.values()), seen
    batches, rest = divmod(counts.pop(), PER_PARTITION)
    assert rest == 0, seen
    return batches


def start(spark: SparkSession, bootstrap: str, topic: str, table: SinkTable) -> StreamingQuery:
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_PARTITION * PARTITIONS)
        .load()
        .select("partition", "offset", "value")
        .writeStream.format(table.sink)
        .options(**table.options)
        .option("checkpointLocation", str(table.directory / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start(table.target)
    )


def test_readers_see_whole_batches_while_a_table_grows_and_is_maintained(
    spark: SparkSession,
    bootstrap: str,
    fill: Callable[[str, int, list[tuple[bytes | None, bytes | None]]], None],
    topic: str,
    table: SinkTable,
) -> None:
    for partition in range(PARTITIONS):
        fill(topic, partition, [(None, b"%d" % i) for i in range(PER_PARTITION * BATCHES)])
    connection = duckdb_connection()
    query = start(spark, bootstrap, topic, table)
    seen: list[set[int]] = [set(), set()]
    compactions: list[int] = []

    def is_there() -> bool:
        nonlocal query
        if worker_was_late(query.exception()):
            query = start(spark, bootstrap, topic, table)
        assert query.exception() is None
        try:
            return table.maintained.status(SMALL).rows > 0
        except (MaintenanceError, NoSuchTableError):
            return False

    def read_and_maintain() -> bool:
        assert is_there()
        counts = whole_batches(by_duckdb(connection, table)), whole_batches(by_polars(table))
        for found, count in zip(seen, counts, strict=True):
            found.add(count)
        done = table.maintained.compact(SMALL, lambda _done, _total: None)
        compactions.append(done.removed_files)
        table.maintained.expire(table.cut_ms(), execute=True, progress=lambda _done, _total: None)
        return min(counts) == BATCHES

    try:
        eventually(is_there, lambda: f"{query.exception()}", 300)
        eventually(read_and_maintain, lambda: f"{seen} {query.exception()}", 300)
    finally:
        query.stop()
    assert whole_batches(by_duckdb(connection, table)) == BATCHES
    assert whole_batches(by_polars(table)) == BATCHES
    values = table.arrow()["value"].to_pylist()
    assert len(values) == PER_PARTITION * PARTITIONS * BATCHES
    assert sum(count > 0 for count in compactions) > 1, "compactions beside the stream"
    assert all(len(found) > 1 for found in seen), "reads beside the stream"
