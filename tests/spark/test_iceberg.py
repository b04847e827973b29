"""`format("barnabas_iceberg")`: partitions, columns, expiry and catalogs of an Iceberg table.

`test_table_sinks` has what both kinds of tables do, and `test_table_kills` the kills.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from barnabas.client.facade import Client
from barnabas.spark.iceberg.catalog import open_table
from spark.iceberg_tables import named, now_ms
from spark.rest_catalog import RestCatalog
from spark.table_writes import fill, forget, read_topic, stream, values, values_and, write
from spark.tables import IcebergSinkTable

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> IcebergSinkTable:
    return IcebergSinkTable(tmp_path)


def test_a_repeated_batch_is_not_added_again_even_if_its_snapshot_expired(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, table: IcebergSinkTable
) -> None:
    records = values_and(read_topic(spark, bootstrap, topic))
    for first, end in ((0, 100), (100, 150)):
        fill(client, topic, first, end)
        stream(records, table)
    before = values(table)
    assert len(before) == 150
    table.maintained.compact(128 << 20, lambda _done, _total: None)
    table.maintained.expire(now_ms(), execute=True, progress=lambda _done, _total: None)
    files = table.files()
    forget(table, 1)
    stream(records, table)
    assert values(table) == before
    assert table.files() == files, "what the repeated batch wrote is left behind"


def test_a_query_adds_new_columns_with_merge_schema_only(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, table: IcebergSinkTable
) -> None:
    records = read_topic(spark, bootstrap, topic)
    fill(client, topic, 0, 10)
    stream(values_and(records), table)
    fill(client, topic, 10, 20)
    with pytest.raises(StreamingQueryException, match="offset is long in the rows and missing"):
        stream(values_and(records, "offset"), table)
    stream(values_and(records, "offset"), table, mergeSchema="true")
    found = table.rows()
    assert sorted(each["value"] for each in found) == sorted(f"v{i}" for i in range(20))
    assert sum(each["offset"] is None for each in found) == 10
    assert sum(each["partition"] is None for each in found) == 10


def test_partitions_of_the_table_prune_and_keep_nulls(
    spark: SparkSession, table: IcebergSinkTable
) -> None:
    frame = spark.sql(
        "select id, case when id % 3 = 0 then null else concat('k /', id % 3) end as kind,"
        " date_add(date'2013-01-01', cast(id % 2 as int)) as day from range(60)"
    )
    write(frame, table, partitionColumns="kind, day")
    assert len({(each["kind"], each["day"]) for each in table.rows()}) == 6
    scan = open_table(named(table.directory)).scan("kind = 'k /1' and day = '2013-01-02'")
    assert all(task.file.partition[0] == "k /1" for task in scan.plan_files())
    assert sorted(scan.to_arrow()["id"].to_pylist()) == list(range(1, 60, 6))


@pytest.mark.nightly
def test_a_rest_catalog_commits_batches_too(
    spark: SparkSession, client: Client, bootstrap: str, topic: str, table: IcebergSinkTable
) -> None:
    with RestCatalog(table.directory) as catalog:
        rest = {"catalog.uri": catalog.uri, "catalog.type": "rest", "catalog.warehouse": "lake"}
        records = values_and(read_topic(spark, bootstrap, topic))
        fill(client, topic, 0, 10)
        stream(records, table, **rest)
        forget(table, 0)
        stream(records, table, **rest)
    assert values(table) == sorted(f"v{i}" for i in range(10))
