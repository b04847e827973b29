"""Batches of streams in tables of Delta and Iceberg: each once, beside other writers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.pipelines.output import Sink
from pyspark.pipelines.source_code_location import SourceCodeLocation
from pyspark.sql.types import LongType, StructField, StructType

from barnabas.spark.pipelines.definition_checks import stored_sink
from barnabas.spark.table_sinks import DeltaSink, IcebergSink
from barnabas.spark.tables.commits import BatchIdentity
from barnabas.spark.tables.writers import WrittenFiles
from spark.batch_tables import BATCH_KINDS, BatchTable
from spark.iceberg_tables import named, now_ms, stored_files

TARGET = 128 << 20


def quiet(_done: int, _total: int) -> None:
    """Progress that is not shown."""


@pytest.fixture(params=BATCH_KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> BatchTable:
    return BATCH_KINDS[request.param](tmp_path)


def test_a_batch_is_added_once(table: BatchTable) -> None:
    table.write(1, batch=0)
    table.write(2, batch=1)
    table.write(2, batch=1)
    table.write(3, batch=1, query="another query")
    assert table.ids() == [1, 2, 3]


def test_the_files_of_a_repeated_batch_are_removed(table: BatchTable, tmp_path: Path) -> None:
    table.write(1, batch=0)
    before = stored_files(tmp_path)
    table.write(1, batch=0)
    assert stored_files(tmp_path) == before


def test_a_checkpoint_older_than_the_table_is_refused(table: BatchTable) -> None:
    for batch in range(3):
        table.write(batch, batch=batch)
    with pytest.raises(table.error, match=r"has batch 2 .* the checkpoint is at batch 1"):
        table.write(1, batch=1)
    assert table.ids() == [0, 1, 2]


def test_concurrent_writers_lose_no_batch(table: BatchTable) -> None:
    def write(number: int) -> None:
        for batch in range(5):
            table.write(number * 5 + batch, batch=batch, query=f"query {number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert table.ids() == list(range(20))


def test_two_drivers_of_a_query_add_a_batch_once(table: BatchTable) -> None:
    with ThreadPoolExecutor(4) as pool:
        for batch in range(3):
            list(pool.map(lambda batch: table.write(batch, batch=batch), [batch] * 4))
    assert table.ids() == [0, 1, 2]


def test_an_overwrite_replaces_all_rows(table: BatchTable) -> None:
    table.write(1, 2, batch=0, overwrite=True)
    table.write(3, batch=1, overwrite=True)
    table.write(3, batch=1, overwrite=True)
    assert table.ids() == [3]
    target = table.target(overwrite=True)
    target.commit(WrittenFiles([], "query"), BatchIdentity("query", 2))
    assert table.ids() == []


def test_only_files_that_no_version_of_the_table_names_are_removed(
    table: BatchTable, tmp_path: Path
) -> None:
    target = table.target()
    committed, left = table.files(target, 1), table.files(target, 2)
    target.commit(WrittenFiles(committed, "query"), None)
    table.write(3, batch=0, overwrite=True)
    before = stored_files(tmp_path)
    target.abort(WrittenFiles([*committed, *left], "query"), has_failed_task=True)
    (removed,) = before - stored_files(tmp_path)
    assert removed in repr(left)


ROWS = StructType([StructField("id", LongType()), StructField("count", LongType())])
# What a task without rows reports.
NO_FILES = WrittenFiles([], "q")


@pytest.mark.parametrize("merge", [{}, {"mergeKeys": "id"}], ids=["append", "merge"])
@pytest.mark.parametrize("kind", [DeltaSink, IcebergSink])
def test_a_first_batch_without_rows_creates_the_table(
    tmp_path: Path, kind: type[DeltaSink | IcebergSink], merge: dict[str, str]
) -> None:
    if kind is DeltaSink:
        options = {"path": str(tmp_path / "hours")}
    else:
        name = named(tmp_path)
        catalog = {f"catalog.{key}": value for key, value in name.properties.items()}
        options = {"table": name.table, "catalog": name.catalog, **catalog}
    sink = Sink("hours", None, SourceCodeLocation("datasets.py", 1), kind.name(), options)
    assert stored_sink(sink).missing is not None
    writer = kind(options | merge).streamWriter(ROWS, overwrite=False)
    writer.commit([NO_FILES], 0)
    assert stored_sink(sink).missing is None


def test_later_batches_without_rows_are_no_commits(tmp_path: Path) -> None:
    for batch in range(3):
        writer = DeltaSink({"path": str(tmp_path)}).streamWriter(ROWS, overwrite=False)
        writer.commit([NO_FILES], batch)
    assert DeltaTable(tmp_path).version() == 0


def test_a_compaction_makes_one_file_and_batches_stay_known(table: BatchTable) -> None:
    for batch in range(3):
        table.write(batch, batch=batch)
    maintained = table.maintained
    assert maintained.status(TARGET).small_files == 3
    done = maintained.compact(TARGET, quiet)
    assert (done.removed_files, done.added_files) == (3, 1)
    found = maintained.status(TARGET)
    assert (found.rows, found.files) == (3, 1)
    table.write(2, batch=2)
    assert table.ids() == [0, 1, 2]


def test_an_expiry_removes_the_files_that_a_compaction_replaced(
    table: BatchTable, tmp_path: Path
) -> None:
    for batch in range(3):
        table.write(batch, batch=batch)
    maintained = table.maintained
    maintained.compact(TARGET, quiet)
    planned = maintained.expire(now_ms(), execute=False, progress=quiet)
    assert len(stored_files(tmp_path)) == 4
    assert maintained.expire(now_ms(), execute=True, progress=quiet).files == planned.files
    assert len(stored_files(tmp_path)) == 1
    table.write(2, batch=2)
    assert table.ids() == [0, 1, 2]
