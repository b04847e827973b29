"""What both sinks for tables do: rows, types, and repeated batches.

`test_table_kills` has the kills; `test_delta` and `test_iceberg` have what only one of them does.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession

from barnabas.client.facade import Client
from selection import nightly_rows_unless, nightly_unless
from spark.table_writes import (
    checkpoint_of,
    fill,
    forget,
    read_topic,
    stream,
    values,
    values_and,
    write,
)
from spark.tables import KINDS, SinkTable

pytestmark = pytest.mark.spark


# `test_iceberg` writes to tables of Iceberg in `make check` too.
@pytest.fixture(params=nightly_unless("delta".__eq__, KINDS))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> SinkTable:
    made: SinkTable = KINDS[request.param](tmp_path)
    return made


def test_a_repeated_batch_is_not_added_again(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, table: SinkTable
) -> None:
    records = values_and(read_topic(spark, bootstrap, topic))
    for first, end in ((0, 100), (100, 150)):
        fill(client, topic, first, end)
        stream(records, table)
    before, files = values(table), table.files()
    assert len(before) == 150
    forget(table, 1)
    stream(records, table)
    assert values(table) == before
    assert table.files() == files, "what the repeated batch wrote is left behind"


def test_a_checkpoint_older_than_the_table_is_refused(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, table: SinkTable
) -> None:
    records = values_and(read_topic(spark, bootstrap, topic))
    for number in range(2):
        fill(client, topic, number * 10, number * 10 + 10)
        stream(records, table)
    before = values(table)
    forget(table, 1, "offsets")
    forget(table, 1)
    forget(table, 0)
    with pytest.raises(StreamingQueryException, match="older than the table"):
        stream(records, table)
    assert values(table) == before


def test_a_new_query_appends_to_the_table(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, table: SinkTable
) -> None:
    fill(client, topic, 0, 10)
    records = values_and(read_topic(spark, bootstrap, topic))
    stream(records, table)
    checkpoint_of(table).rename(table.directory / "old")
    stream(records, table)
    assert len(table.rows()) == 20


def test_a_complete_result_replaces_the_rows(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, table: SinkTable
) -> None:
    for end in (10, 30):
        fill(client, topic, 0, end)
        counts = read_topic(spark, bootstrap, topic).groupBy("topic").count()
        stream(counts, table, "complete")
    assert table.rows() == [{"topic": topic, "count": 40}]


def test_every_type_is_read_back_unchanged(spark: SparkSession, table: SinkTable) -> None:
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
    write(spark.createDataFrame([row], schema), table)
    [found] = table.rows()
    assert found["moment"] == moment
    assert found["part"] == {"name": "x", "at": moment}
    assert found["pairs"] == [("a", 1)]
    plain = ("whole", "big", "real", "flag", "text", "day", "cost", "several", "empty")
    assert {name: found[name] for name in plain} == {name: row[name] for name in plain}
    assert found["raw"] == b"\x00\xff"


def test_batch_writes_append_or_overwrite(spark: SparkSession, table: SinkTable) -> None:
    write(spark.range(3), table)
    write(spark.range(3, 5), table)
    assert sorted(each["id"] for each in table.rows()) == [0, 1, 2, 3, 4]
    write(spark.range(1), table, "overwrite")
    assert table.rows() == [{"id": 0}]


# Options, queries and messages of each kind. The table has one column, a long `id`.
REFUSED = {
    "delta": [
        ("select 'a' as id", {}, "id is .*string.* in the rows and .*long.* in the table"),
        ("select 1L as id, 2 as more", {}, "more is .* in the rows and missing in the table"),
        ("select 1L as id, 2 as n", {"partitionColumns": "n"}, "has no partitions"),
        ("select 1L as id", {"partitionColumns": "id"}, "names every column"),
        ("select 1L as id", {"partitionColumns": "day"}, "names day, which the rows do not have"),
        ("select 1L as id", {"mergeSchemas": "true"}, "unknown option"),
        ("select 1L as id", {"mergeSchema": "yes"}, "mergeSchema='yes' is neither true nor false"),
        ("select 1L as id", {"overwriteSchema": "true"}, "set the mode to overwrite"),
        ("select parse_json('1') as id", {}, "id is variant"),
    ],
    "iceberg": [
        ("select 'a' as id", {}, "id is string in the rows and long in the table"),
        ("select 1L as id", {"partitionColumns": "day"}, "names day, which the rows do not have"),
        ("select 1L as id", {"overwriteSchema": "true"}, "is an option of Delta tables"),
        ("select 1L as id", {"mergeSchema": "yes"}, "neither true nor false"),
        ("select 1L as id", {"table": "flights"}, "write namespace and name"),
        ("select make_ym_interval(1) as id", {}, "cannot store these columns: id is interval year"),
        ("select interval '1' day as id", {}, "id is interval day"),
    ],
}


@pytest.mark.parametrize(
    ("table", "query", "options", "message"),
    nightly_rows_unless(
        lambda row: row[1:] in (REFUSED["delta"][0], REFUSED["iceberg"][-1]),
        [(kind, *each) for kind in KINDS for each in REFUSED[kind]],
    ),
    indirect=["table"],
)
def test_rows_that_do_not_fit_the_table_are_refused_and_leave_no_file(
    spark: SparkSession, table: SinkTable, query: str, options: dict[str, str], message: str
) -> None:
    write(spark.range(3).coalesce(1), table)
    files = table.files()
    with pytest.raises(Exception, match=message):
        write(spark.sql(query), table, **options)
    assert len(table.rows()) == 3
    assert table.files() == files
