"""Commits to Iceberg tables: each batch once, beside other writers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from barnabas.spark.errors import IcebergTableError
from barnabas.spark.iceberg.catalog import TableName, open_table
from barnabas.spark.iceberg.commit import last_batch
from barnabas.spark.iceberg.maintenance import expire_snapshots
from spark.iceberg_tables import SCHEMA, Writer, named, now_ms, rows


@pytest.fixture
def name(tmp_path: Path) -> TableName:
    return named(tmp_path)


@pytest.fixture
def writer(name: TableName) -> Writer:
    return Writer(name)


def test_a_commit_names_query_and_batch(writer: Writer, name: TableName) -> None:
    assert writer.write(1, 2, batch=0)
    table = open_table(name)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["barnabas.query-id"] == "query"
    assert snapshot.summary["barnabas.batch-id"] == "0"
    assert last_batch(table, "query") == 0


def test_a_batch_is_known_after_its_snapshot_has_expired(writer: Writer, name: TableName) -> None:
    writer.write(1, batch=0)
    writer.write(2, batch=0, query="another query")
    assert len(expire_snapshots(name, now_ms())) == 1
    assert not writer.write(1, batch=0)
    assert rows(name) == [1, 2]


def test_a_batch_with_a_tag_is_known_after_later_snapshots_have_expired(
    writer: Writer, name: TableName
) -> None:
    writer.write(1, batch=0)
    table = open_table(name)
    current = table.metadata.current_snapshot_id
    assert current is not None
    table.manage_snapshots().create_tag(current, "kept").commit()
    writer.write(2, batch=0, query="another query")
    writer.write(3, batch=1, query="another query")
    assert len(expire_snapshots(name, now_ms())) == 1
    assert not writer.write(1, batch=0)


def test_a_table_that_was_rolled_back_takes_the_batches_again(
    writer: Writer, name: TableName
) -> None:
    for batch in range(3):
        writer.write(batch, batch=batch)
    table = open_table(name)
    first = table.history()[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert last_batch(open_table(name), "query") == 0
    assert not writer.write(0, batch=0)
    assert writer.write(10, batch=1)
    assert rows(name) == [0, 10]


def test_files_of_an_earlier_schema_fit_a_table_with_more_columns(
    writer: Writer, name: TableName
) -> None:
    Writer(name, schema=SCHEMA.append(pa.field("more", pa.string())), merge_schema=True)
    assert writer.write(1, batch=0)
    assert open_table(name).scan().to_arrow().to_pylist() == [
        {"id": 1, "kind": "kind 1", "more": None}
    ]


def test_files_for_a_column_that_was_removed_are_refused(writer: Writer, name: TableName) -> None:
    with open_table(name).update_schema() as update:
        update.delete_column("kind")
    with pytest.raises(IcebergTableError, match="was changed while the batch was written"):
        writer.write(1, batch=0)
