"""Partitions of Delta tables: paths of files, and what readers make of them.

`tests/spark/test_delta_readers.py` has Spark's own reader.
"""

from __future__ import annotations

import datetime as dt
import math
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from duckdb import DuckDBPyConnection
from pyspark.sql.types import ArrayType, BinaryType, DataType, LongType, StructField, StructType

from barnabas.spark.delta.columns import columns_of
from barnabas.spark.delta.files import WrittenFile, partition_directory, partition_text, task_files
from barnabas.spark.delta.maintenance import MaintainedDelta
from barnabas.spark.delta.options import DeltaOptions, parse_delta_options
from barnabas.spark.delta.plan import plan_write
from barnabas.spark.delta.table import commit_files, open_files, remove_unnamed
from barnabas.spark.errors import DeltaTableError, OptionError
from barnabas.spark.tables.rows import write_all
from spark.iceberg_tables import now_ms, stored_files
from spark.partitioned_delta import PARTITION_BY, SCHEMA, TEXTS, rows, write, write_batch
from spark.tables import duckdb_connection

Row = dict[str, Any]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("partitioned")
    write(directory, rows())
    return directory


def polars_rows(table: Path, text: str | None) -> list[Row]:
    found = pl.scan_delta(table).filter(pl.col("text").eq_missing(text))
    return found.collect().select(SCHEMA.names).to_dicts()


def duckdb_rows(table: Path, text: str | None) -> list[Row]:
    query = f"select * from delta_scan('{table}') where text is not distinct from ?"
    found = shared_connection().execute(query, [text]).arrow().read_all()
    return found.select(SCHEMA.names).cast(SCHEMA).to_pylist()


def deltalake_rows(table: Path, text: str | None) -> list[Row]:
    column = pc.field("text")
    wanted = column.is_null() if text is None else column == text
    found = DeltaTable(table).to_pyarrow_table(filters=wanted)
    return found.select(SCHEMA.names).to_pylist()


@cache
def shared_connection() -> DuckDBPyConnection:
    connection = duckdb_connection()
    connection.execute("set timezone = 'UTC'")
    return connection


READERS = {"polars": polars_rows, "duckdb": duckdb_rows, "deltalake": deltalake_rows}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_readers_find_each_row_by_its_partition(
    table: Path, reader: Callable[[Path, str | None], list[Row]]
) -> None:
    for text, row in zip(TEXTS, rows(), strict=True):
        assert reader(table, text) == [row]


def written_files(options: DeltaOptions, *batches: pa.RecordBatch) -> list[WrittenFile]:
    """Write the files of one task for a new table."""
    plan = plan_write(options, columns_of(batches[0].schema), None, removes_rows=False)
    return write_all(task_files(open_files(options), plan), batches)


def test_files_are_in_the_directories_that_delta_rs_uses(tmp_path: Path) -> None:
    # delta-rs writes times without their zone, and some floats without their fraction.
    names = [name for name in SCHEMA.names if name not in ("at", "real", "single")]
    only = [{name: row[name] for name in names} for row in rows()]
    schema = pa.schema([SCHEMA.field(name) for name in names])
    partition_by = [name for name in names if name != "id"]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    write_deltalake(theirs, pa.Table.from_pylist(only, schema), partition_by=partition_by)
    options = DeltaOptions(str(ours), tuple(partition_by))
    batch = pa.RecordBatch.from_pylist(only, schema)
    written_files(options, batch)

    def directories(path: Path) -> set[str]:
        return {f"{each.parent.relative_to(path)}" for each in path.rglob("part-*.parquet")}

    assert directories(ours) == directories(theirs)


def test_a_table_of_flat_files_is_continued_in_directories(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("kind", pa.string())])
    options = DeltaOptions(str(tmp_path), ("kind",))
    row = {"id": 1, "kind": "a/b"}
    [file] = write_batch(options, [row], schema)
    shutil.rmtree(tmp_path / "_delta_log")
    (tmp_path / file.path).rename(tmp_path / "flat.parquet")
    plan = plan_write(options, columns_of(schema), None, removes_rows=False)
    flat = WrittenFile("flat.parquet", *_after_path(file))
    commit_files(options, plan, [flat], None)
    write_batch(options, [row], schema)
    assert DeltaTable(tmp_path).to_pyarrow_table()["kind"].to_pylist() == ["a/b", "a/b"]
    assert MaintainedDelta(options).compact(1 << 20, lambda *_: None).removed_files == 2
    assert pl.scan_delta(tmp_path).filter(pl.col("kind") == "a/b").collect().height == 2


def _after_path(file: WrittenFile) -> tuple[int, dict[str, str | None], int, str]:
    return file.size, file.partition_values, file.modified_ms, file.statistics


def test_committed_files_stay_and_other_files_go(tmp_path: Path) -> None:
    options = DeltaOptions(str(tmp_path), PARTITION_BY)
    batch = pa.RecordBatch.from_pylist(rows(), SCHEMA)
    tasks = [written_files(options, batch) for _ in range(2)]
    plan = plan_write(options, columns_of(SCHEMA), None, removes_rows=False)
    commit_files(options, plan, tasks[0], None)
    remove_unnamed(options, [*tasks[0], *tasks[1]], 0)
    assert stored_files(tmp_path) == {Path(each.path).name for each in tasks[0]}


def test_maintenance_keeps_partitions(tmp_path: Path) -> None:
    for _ in range(2):
        write(tmp_path, rows())
    table = MaintainedDelta(DeltaOptions(str(tmp_path)))
    assert table.compact(1 << 20, lambda *_: None).removed_files == 2 * len(TEXTS)
    removed = table.expire(now_ms(), execute=True, progress=lambda *_: None).files
    assert len(removed) == 2 * len(TEXTS)
    assert len(stored_files(tmp_path)) == len(TEXTS)
    for text, row in zip(TEXTS, rows(), strict=True):
        assert polars_rows(tmp_path, text) == [row, row]


def test_values_that_are_not_equal_to_themselves_share_a_file(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("real", pa.float64())])
    options = DeltaOptions(str(tmp_path), ("real",))
    batch = pa.record_batch({"id": [1, 2], "real": [math.nan, math.nan]}, schema)
    files = written_files(options, batch, batch)
    assert [each.path.partition("/")[0] for each in files] == ["real=NaN"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", None),
        (dt.datetime(1, 2, 3, tzinfo=dt.UTC), "0001-02-03T00:00:00.000000Z"),
        (dt.datetime(1, 2, 3, tzinfo=dt.UTC).replace(tzinfo=None), "0001-02-03 00:00:00.000000"),
        (-math.inf, "-Infinity"),
    ],
)
def test_values_have_the_text_of_the_protocol(value: object, text: str | None) -> None:
    assert partition_text(value) == text


def test_a_value_that_is_too_long_for_a_directory_is_refused() -> None:
    assert partition_directory({"kind": "x" * 250}) == f"kind={'x' * 250}/"
    with pytest.raises(DeltaTableError, match="a value of kind has 90 characters"):
        partition_directory({"kind": "ü" * 90})


@pytest.mark.parametrize("kind", [BinaryType(), ArrayType(LongType()), StructType()])
def test_partitions_by_binary_and_nested_columns_are_refused(kind: DataType) -> None:
    schema = StructType([StructField("id", LongType()), StructField("odd", kind)])
    with pytest.raises(OptionError, match=f"names odd, which is {kind.simpleString()}: "):
        parse_delta_options({"path": "/t", "partitionColumns": "odd"}, schema)
