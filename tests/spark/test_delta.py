"""`format("barnabas_delta")`: partitions, statistics, constraints and columns of a Delta table.

`test_table_sinks` has what both kinds of tables do, and `test_table_kills` the kills.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from pyspark.sql import SparkSession

from barnabas.client.facade import Client
from spark.table_writes import checkpoint_of, fill, read_topic, stream, write
from spark.tables import DeltaSinkTable

pytestmark = pytest.mark.spark


class DeltaAtUri(DeltaSinkTable):
    """A table that is named by a URI."""

    @property
    def target(self) -> str:
        return Path(super().target).as_uri()


@pytest.fixture
def table(tmp_path: Path) -> DeltaSinkTable:
    return DeltaSinkTable(tmp_path)


def test_partitions_of_the_table_prune_and_keep_nulls(
    spark: SparkSession, table: DeltaSinkTable
) -> None:
    frame = spark.sql(
        "select id, case when id % 3 = 0 then null else concat('k /', id % 3) end as kind,"
        " date_add(date'2013-01-01', cast(id % 2 as int)) as day from range(60)"
    )
    write(frame, table, partitionColumns="kind, day")
    stored = DeltaTable(table.target)
    assert stored.metadata().partition_columns == ["kind", "day"]
    assert len({(each["kind"], each["day"]) for each in table.rows()}) == 6
    one = stored.to_pyarrow_table(
        filters=[("kind", "=", "k /1"), ("day", "=", dt.date(2013, 1, 2))], columns=["id"]
    )
    assert sorted(one["id"].to_pylist()) == list(range(1, 60, 6))


def test_statistics_name_least_and_greatest_values(
    spark: SparkSession, table: DeltaSinkTable
) -> None:
    frame = spark.sql(
        "select id, if(id = 3, null, 'n' || id) as name, timestamp'2013-01-01 00:00:00' as at,"
        " cast('NaN' as double) as odd from range(10)"
    ).coalesce(1)
    write(frame, table)
    found = DeltaTable(table.target).get_add_actions(flatten=True)
    [actions] = pa.table(found).to_pylist()
    assert actions["num_records"] == 10
    assert (actions["min.id"], actions["max.id"]) == (0, 9)
    assert (actions["min.name"], actions["max.name"], actions["null_count.name"]) == ("n0", "n9", 1)
    assert actions.get("max.odd") is None


def test_rows_that_violate_a_constraint_are_refused_and_leave_no_file(
    spark: SparkSession, table: DeltaSinkTable
) -> None:
    fields = [Field("id", "long", nullable=False), Field("v", "long")]
    created = DeltaTable.create(table.target, Schema(fields))
    created.alter.add_constraint({"positive": "v > 0"})
    write(spark.sql("select id, 7L as v from range(3)"), table)
    files = table.files()
    for query, message in [
        ("select id, 1 - id as v from range(3)", "positive"),
        ("select if(id = 1, null, id) as id, 1L as v from range(3)", "id is NOT NULL"),
    ]:
        with pytest.raises(Exception, match=message):
            write(spark.sql(query).coalesce(1), table)
    assert len(table.rows()) == 3
    assert table.files() == files


def test_a_table_made_of_counts_takes_nulls(spark: SparkSession, table: DeltaSinkTable) -> None:
    write(spark.sql("select count(*) as n, array(1) as a, struct(1 as x) as s"), table)
    write(spark.sql("select null as n, array(null) as a, null as s"), table)
    assert {"n": None, "a": [None], "s": None} in table.rows()


def test_streams_add_columns_and_replace_them_by_options(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, table: DeltaSinkTable
) -> None:
    fill(client, topic, 0, 2)
    events = read_topic(spark, bootstrap, topic)
    write(spark.range(1), table)
    by_uri = DeltaAtUri(table.directory)
    stream(events.selectExpr("cast(value as string) as value"), by_uri, mergeSchema="true")
    assert {(each["id"], each["value"]) for each in table.rows()} == {
        (0, None),
        (None, "v0"),
        (None, "v1"),
    }
    checkpoint_of(table).rename(table.directory / "old")
    stream(events.groupBy("topic").count(), by_uri, "complete", overwriteSchema="true")
    assert table.rows() == [{"topic": topic, "count": 2}]
