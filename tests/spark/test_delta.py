"""`format("barnabas_delta")`: rows, types and partitions of a Delta table, and repeated batches.

`test_table_kills` has the kills.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from barnabas.client.facade import Client
from spark.queries import to_the_end

pytestmark = pytest.mark.spark


def fill(client: Client, topic: str, first: int, end: int) -> None:
    with client.producer() as producer:
        producer.send_batch(topic, [(b"%d" % i, b"v%d" % i, [], None) for i in range(first, end)])


def run(spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> None:
    """The topic up to its end into `directory`/table."""
    writer = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(value as string) as value", "partition")
        .writeStream.format("barnabas_delta")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
    )
    to_the_end(lambda: writer.start(str(directory / "table")))


def rows(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(directory / "table").to_pyarrow_table().to_pylist()
    return found


def values(directory: Path) -> list[str]:
    return sorted(each["value"] for each in rows(directory))


def parquet_files(directory: Path) -> set[str]:
    return {each.name for each in (directory / "table").rglob("*.parquet")}


def write(frame: DataFrame, directory: Path, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("barnabas_delta").mode(mode).options(**options)
    writer.save(str(directory / "table"))


def test_a_repeated_batch_is_not_added_again(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 0, 100)
    run(spark, bootstrap, topic, tmp_path)
    fill(client, topic, 100, 150)
    run(spark, bootstrap, topic, tmp_path)
    before, files = values(tmp_path), parquet_files(tmp_path)
    assert len(before) == 150
    # As if Spark had been killed behind the table's commit and before its own.
    commits = tmp_path / "checkpoint" / "commits"
    for each in (commits / "1", commits / ".1.crc"):
        each.unlink()
    run(spark, bootstrap, topic, tmp_path)
    assert values(tmp_path) == before
    assert parquet_files(tmp_path) == files, "what the repeated batch wrote is left behind"


def test_a_checkpoint_older_than_the_table_is_refused(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    for number in range(2):
        fill(client, topic, number * 10, number * 10 + 10)
        run(spark, bootstrap, topic, tmp_path)
    before = values(tmp_path)
    for folder in ("commits", "offsets"):
        (tmp_path / "checkpoint" / folder / "1").unlink()
        (tmp_path / "checkpoint" / folder / ".1.crc").unlink()
    commits = tmp_path / "checkpoint" / "commits"
    (commits / "0").unlink()
    (commits / ".0.crc").unlink()
    with pytest.raises(StreamingQueryException, match="older than the table"):
        run(spark, bootstrap, topic, tmp_path)
    assert values(tmp_path) == before


def test_a_new_query_appends_to_the_table(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 0, 10)
    run(spark, bootstrap, topic, tmp_path)
    (tmp_path / "checkpoint").rename(tmp_path / "old")
    run(spark, bootstrap, topic, tmp_path)
    assert len(rows(tmp_path)) == 20


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
            .writeStream.format("barnabas_delta")
            .outputMode("complete")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        to_the_end(lambda writer=writer: writer.start(str(tmp_path / "table")))
    assert rows(tmp_path) == [{"topic": topic, "count": 40}]


def test_every_type_is_read_back_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    moment = dt.datetime(2013, 1, 1, 5, 17, 30, 123456, tzinfo=dt.UTC)
    row = Row(
        whole=7, big=1 << 40, real=0.5, flag=True, text="grün", raw=bytearray(b"\x00\xff"),
        day=dt.date(2013, 1, 1), moment=moment, part=Row(name="x", at=moment),
        several=[1, 2], pairs={"a": 1}, empty=None,
    )  # fmt: skip
    schema = (
        "whole int, big bigint, real double, flag boolean, text string, raw binary, day date,"
        " moment timestamp, part struct<name:string,at:timestamp>, several array<int>,"
        " pairs map<string,int>, empty string"
    )
    write(spark.createDataFrame([row], schema), tmp_path)
    [found] = rows(tmp_path)
    assert found["moment"] == moment
    assert found["part"] == {"name": "x", "at": moment}
    assert found["pairs"] == [("a", 1)]
    plain = ("whole", "big", "real", "flag", "text", "day", "several", "empty")
    assert {name: found[name] for name in plain} == {name: row[name] for name in plain}
    assert found["raw"] == b"\x00\xff"


def test_partitions_of_the_table_prune_and_keep_nulls(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select id, case when id % 3 = 0 then null else concat('k /', id % 3) end as kind,"
        " date_add(date'2013-01-01', cast(id % 2 as int)) as day from range(60)"
    )
    write(frame, tmp_path, partitionColumns="kind, day")
    table = DeltaTable(tmp_path / "table")
    assert table.metadata().partition_columns == ["kind", "day"]
    assert len({(each["kind"], each["day"]) for each in rows(tmp_path)}) == 6
    one = table.to_pyarrow_table(
        filters=[("kind", "=", "k /1"), ("day", "=", dt.date(2013, 1, 2))], columns=["id"]
    )
    assert sorted(one["id"].to_pylist()) == list(range(1, 60, 6))


def test_statistics_name_least_and_greatest_values(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select id, if(id = 3, null, 'n' || id) as name, timestamp'2013-01-01 00:00:00' as at,"
        " cast('NaN' as double) as odd from range(10)"
    ).coalesce(1)
    write(frame, tmp_path)
    found = DeltaTable(tmp_path / "table").get_add_actions(flatten=True)
    [actions] = pa.table(found).to_pylist()
    assert actions["num_records"] == 10
    assert (actions["min.id"], actions["max.id"]) == (0, 9)
    assert (actions["min.name"], actions["max.name"], actions["null_count.name"]) == ("n0", "n9", 1)
    assert actions.get("max.odd") is None


def test_batch_writes_append_or_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(3), tmp_path)
    write(spark.range(3, 5), tmp_path)
    assert sorted(each["id"] for each in rows(tmp_path)) == [0, 1, 2, 3, 4]
    write(spark.range(1), tmp_path, "overwrite")
    assert rows(tmp_path) == [{"id": 0}]


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("select 'a' as id", {}, "id is .*string.* in the rows and .*long.* in the table"),
        ("select 1L as id, 2 as more", {}, "more is .* in the rows and missing in the table"),
        ("select 1L as id, 2 as n", {"partitionColumns": "n"}, "has no partitions"),
        ("select 1L as id", {"partitionColumns": "id"}, "names every column"),
        ("select 1L as id", {"partitionColumns": "day"}, "names day, which the rows do not have"),
        ("select 1L as id", {"mergeSchemas": "true"}, "unknown option"),
        (
            "select 1L as id",
            {"mergeSchema": "yes"},
            "mergeSchema='yes' is neither true nor false",
        ),
        ("select 1L as id", {"overwriteSchema": "true"}, "set the mode to overwrite"),
        ("select parse_json('1') as id", {}, "id is variant"),
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused_and_leave_no_file(
    spark: SparkSession, tmp_path: Path, query: str, options: dict[str, str], message: str
) -> None:
    write(spark.range(3).coalesce(1), tmp_path)
    files = parquet_files(tmp_path)
    with pytest.raises(Exception, match=message):
        write(spark.sql(query), tmp_path, **options)
    assert len(rows(tmp_path)) == 3
    assert parquet_files(tmp_path) == files


def test_rows_that_violate_a_constraint_are_refused_and_leave_no_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    fields = [Field("id", "long", nullable=False), Field("v", "long")]
    table = DeltaTable.create(tmp_path / "table", Schema(fields))
    table.alter.add_constraint({"positive": "v > 0"})
    write(spark.sql("select id, 7L as v from range(3)"), tmp_path)
    files = parquet_files(tmp_path)
    for query, message in [
        ("select id, 1 - id as v from range(3)", "positive"),
        ("select if(id = 1, null, id) as id, 1L as v from range(3)", "id is NOT NULL"),
    ]:
        with pytest.raises(Exception, match=message):
            write(spark.sql(query).coalesce(1), tmp_path)
    assert len(rows(tmp_path)) == 3
    assert parquet_files(tmp_path) == files


def test_a_table_made_of_counts_takes_nulls(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.sql("select count(*) as n, array(1) as a, struct(1 as x) as s"), tmp_path)
    write(spark.sql("select null as n, array(null) as a, null as s"), tmp_path)
    assert {"n": None, "a": [None], "s": None} in rows(tmp_path)


def test_streams_add_columns_and_replace_them_by_options(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 0, 2)
    events = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )

    def stream(frame: DataFrame, mode: str, option: str) -> None:
        writer = (
            frame.writeStream.format("barnabas_delta")
            .option(option, "true")
            .option("checkpointLocation", str(tmp_path / mode))
            .outputMode(mode)
            .trigger(availableNow=True)
        )
        to_the_end(lambda: writer.start((tmp_path / "table").as_uri()))

    write(spark.range(1), tmp_path)
    stream(events.selectExpr("cast(value as string) as value"), "append", "mergeSchema")
    assert {(each["id"], each["value"]) for each in rows(tmp_path)} == {
        (0, None),
        (None, "v0"),
        (None, "v1"),
    }
    stream(events.groupBy("topic").count(), "complete", "overwriteSchema")
    assert rows(tmp_path) == [{"topic": topic, "count": 2}]
