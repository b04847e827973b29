"""`format("barnabas_iceberg")`: rows, types and partitions of an Iceberg table; repeated batches.

`test_table_kills` has the kills.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from barnabas.client.facade import Client
from barnabas.spark.iceberg.catalog import open_table
from barnabas.spark.tables.iceberg_table import MaintainedIceberg
from spark.iceberg_tables import named, now_ms, stored_files
from spark.queries import to_the_end
from spark.rest_catalog import RestCatalog

pytestmark = pytest.mark.spark


def fill(client: Client, topic: str, first: int, end: int) -> None:
    with client.producer() as producer:
        producer.send_batch(topic, [(b"%d" % i, b"v%d" % i, [], None) for i in range(first, end)])


def options(directory: Path) -> dict[str, str]:
    return {f"catalog.{key}": value for key, value in named(directory).properties.items()}


def run(spark: SparkSession, bootstrap: str, topic: str, directory: Path, **more: str) -> None:
    """The topic up to its end into the table."""
    columns = more.pop("columns", "partition")
    writer = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(value as string) as value", columns)
        .writeStream.format("barnabas_iceberg")
        .options(**(options(directory) | more))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
    )
    to_the_end(lambda: writer.start("lake.flights"))


def rows(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = open_table(named(directory)).scan().to_arrow().to_pylist()
    return found


def values(directory: Path) -> list[str]:
    return sorted(each["value"] for each in rows(directory))


def write(frame: DataFrame, directory: Path, mode: str = "append", **more: str) -> None:
    writer = frame.write.format("barnabas_iceberg").mode(mode).options(**options(directory), **more)
    writer.save("lake.flights")


def forget_commit(directory: Path, batch: int) -> None:
    """As if Spark had been killed behind the table's commit and before its own."""
    commits = directory / "checkpoint" / "commits"
    for each in (commits / f"{batch}", commits / f".{batch}.crc"):
        each.unlink()


def test_a_repeated_batch_is_not_added_again_even_if_its_snapshot_expired(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 0, 100)
    run(spark, bootstrap, topic, tmp_path)
    fill(client, topic, 100, 150)
    run(spark, bootstrap, topic, tmp_path)
    before = values(tmp_path)
    assert len(before) == 150
    maintained = MaintainedIceberg(named(tmp_path))
    maintained.compact(128 << 20, lambda _done, _total: None)
    maintained.expire(now_ms(), execute=True, progress=lambda _done, _total: None)
    files = stored_files(tmp_path)
    forget_commit(tmp_path, 1)
    run(spark, bootstrap, topic, tmp_path)
    assert values(tmp_path) == before
    assert stored_files(tmp_path) == files, "what the repeated batch wrote is left behind"


def test_a_checkpoint_older_than_the_table_is_refused(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    for number in range(2):
        fill(client, topic, number * 10, number * 10 + 10)
        run(spark, bootstrap, topic, tmp_path)
    before = values(tmp_path)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "offsets" / name).unlink()
    forget_commit(tmp_path, 1)
    forget_commit(tmp_path, 0)
    with pytest.raises(StreamingQueryException, match="older than the table"):
        run(spark, bootstrap, topic, tmp_path)
    assert values(tmp_path) == before


def test_a_query_adds_new_columns_with_merge_schema_only(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 0, 10)
    run(spark, bootstrap, topic, tmp_path)
    fill(client, topic, 10, 20)
    with pytest.raises(StreamingQueryException, match="offset is long in the rows and missing"):
        run(spark, bootstrap, topic, tmp_path, columns="offset")
    run(spark, bootstrap, topic, tmp_path, columns="offset", mergeSchema="true")
    found = rows(tmp_path)
    assert sorted(each["value"] for each in found) == sorted(f"v{i}" for i in range(20))
    assert sum(each["offset"] is None for each in found) == 10
    assert sum(each["partition"] is None for each in found) == 10


def test_a_complete_result_replaces_the_rows(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    for end in (10, 30):
        fill(client, topic, 0, end)
        writer = (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .groupBy("topic")
            .count()
            .writeStream.format("barnabas_iceberg")
            .outputMode("complete")
            .options(**options(tmp_path))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        to_the_end(lambda writer=writer: writer.start("lake.flights"))
    assert rows(tmp_path) == [{"topic": topic, "count": 40}]


def test_every_type_is_read_back_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    moment = dt.datetime(2013, 1, 1, 5, 17, 30, 123456, tzinfo=dt.UTC)
    row = Row(
        whole=7, big=1 << 40, real=0.5, flag=True, text="grün", raw=bytearray(b"\x00\xff"),
        day=dt.date(2013, 1, 1), moment=moment, cost=Decimal("1.50"), part=Row(name="x", at=moment),
        several=[1, 2], pairs={"a": 1}, empty=None,
    )  # fmt: skip
    schema = (
        "whole int, big bigint, real double, flag boolean, text string, raw binary, day date,"
        " moment timestamp, cost decimal(10,2), part struct<name:string,at:timestamp>,"
        " several array<int>, pairs map<string,int>, empty string"
    )
    write(spark.createDataFrame([row], schema), tmp_path)
    [found] = rows(tmp_path)
    assert found["moment"] == moment
    assert found["part"] == {"name": "x", "at": moment}
    assert found["pairs"] == [("a", 1)]
    plain = ("whole", "big", "real", "flag", "text", "day", "cost", "several", "empty")
    assert {name: found[name] for name in plain} == {name: row[name] for name in plain}
    assert found["raw"] == b"\x00\xff"


def test_partitions_of_the_table_prune_and_keep_nulls(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select id, case when id % 3 = 0 then null else concat('k /', id % 3) end as kind,"
        " date_add(date'2013-01-01', cast(id % 2 as int)) as day from range(60)"
    )
    write(frame, tmp_path, partitionColumns="kind, day")
    assert len({(each["kind"], each["day"]) for each in rows(tmp_path)}) == 6
    scan = open_table(named(tmp_path)).scan("kind = 'k /1' and day = '2013-01-02'")
    assert all(task.file.partition[0] == "k /1" for task in scan.plan_files())
    assert sorted(scan.to_arrow()["id"].to_pylist()) == list(range(1, 60, 6))


def test_batch_writes_append_or_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(3), tmp_path)
    write(spark.range(3, 5), tmp_path)
    assert sorted(each["id"] for each in rows(tmp_path)) == [0, 1, 2, 3, 4]
    write(spark.range(1), tmp_path, "overwrite")
    assert rows(tmp_path) == [{"id": 0}]


@pytest.mark.parametrize(
    ("query", "more", "message"),
    [
        ("select 'a' as id", {}, "id is string in the rows and long in the table"),
        ("select 1L as id", {"partitionColumns": "day"}, "names day, which the rows do not have"),
        ("select 1L as id", {"overwriteSchema": "true"}, "is an option of Delta tables"),
        ("select 1L as id", {"mergeSchema": "yes"}, "neither true nor false"),
        ("select 1L as id", {"table": "flights"}, "write namespace and name"),
        ("select make_ym_interval(1) as id", {}, "cannot store these columns: id is interval year"),
        ("select interval '1' day as id", {}, "id is interval day"),
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused_and_leave_no_file(
    spark: SparkSession, tmp_path: Path, query: str, more: dict[str, str], message: str
) -> None:
    write(spark.range(3).coalesce(1), tmp_path)
    files = stored_files(tmp_path)
    with pytest.raises(Exception, match=message):
        write(spark.sql(query), tmp_path, **more)
    assert len(rows(tmp_path)) == 3
    assert stored_files(tmp_path) == files


def test_a_rest_catalog_commits_batches_too(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    with RestCatalog(tmp_path) as catalog:
        given = {"catalog.uri": catalog.uri, "catalog.type": "rest", "catalog.warehouse": "lake"}
        fill(client, topic, 0, 10)
        run(spark, bootstrap, topic, tmp_path, **given)
        forget_commit(tmp_path, 0)
        run(spark, bootstrap, topic, tmp_path, **given)
    assert values(tmp_path) == sorted(f"v{i}" for i in range(10))
