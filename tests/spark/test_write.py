"""`df.write` and `df.writeStream` with `format("barnabas")`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas.client.facade import Client
from spark.queries import save, to_the_end

pytestmark = pytest.mark.spark

Read = Callable[..., DataFrame]


def test_rows_become_records(spark: SparkSession, read: Read, bootstrap: str, topic: str) -> None:
    save(spark.range(2000).selectExpr("cast(id as string) key", "concat('v', id) value"),
         bootstrap, topic=topic)  # fmt: skip
    rows = read(subscribe=topic).selectExpr("cast(key as string)", "cast(value as string)")
    assert {tuple(row) for row in rows.collect()} == {(str(i), f"v{i}") for i in range(2000)}


def test_topic_partition_and_headers_come_from_columns(
    spark: SparkSession, read: Read, client: Client, bootstrap: str, topic: str
) -> None:
    other = f"{topic}-other"
    client.create_topic(other, 1, 1)
    save(
        spark.sql(
            f"SELECT 'x' value, '{topic}' topic, 2 partition, "
            "array(struct('h' as key, cast('1' as binary) as value)) headers, 9 ignored "
            f"UNION ALL SELECT null, '{other}', null, null, 9"
        ),
        bootstrap,
    )
    (row,) = read(subscribe=topic, includeHeaders="true").collect()
    assert (row.partition, row.key, row.value) == (2, None, b"x")
    assert [(h.key, h.value) for h in row.headers] == [("h", b"1")]
    assert [r.value for r in read(subscribe=other).collect()] == [None]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 'x' v", "no column 'value'"),
        ("SELECT 1 value", "value is int, expected string or binary"),
        ("SELECT 'x' value", "set the option 'topic'"),
        ("SELECT 'x' value, cast(null as string) topic", "'topic' is null"),
    ],
)
def test_the_error_names_rows_that_cannot_be_written(
    spark: SparkSession, bootstrap: str, query: str, words: str
) -> None:
    with pytest.raises(Exception, match=words):
        save(spark.sql(query), bootstrap)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, bootstrap: str, topic: str) -> None:
    with pytest.raises(Exception, match="use mode"):
        (
            spark.sql("SELECT 'x' value")
            .write.format("barnabas")
            .mode("overwrite")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", topic)
            .save()
        )


def test_a_stream_goes_from_topic_to_topic(
    spark: SparkSession, read: Read, client: Client, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    out = f"{topic}-out"
    client.create_topic(out, 2, 1)
    save(spark.range(500).selectExpr("cast(id as string) value"), bootstrap, topic=topic)
    writer = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", out)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
    )
    to_the_end(writer.start)
    values = read(subscribe=out).selectExpr("cast(value as string)").collect()
    assert sorted(int(row[0]) for row in values) == list(range(500))
