"""Iceberg tables in a catalog of SQLite that tests write without Spark."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from barnabas.spark.iceberg.catalog import IcebergOptions, TableName, open_table
from barnabas.spark.iceberg.commit import commit_files
from barnabas.spark.iceberg.files import task_files
from barnabas.spark.iceberg.layout import FilePlan, prepare_table
from barnabas.spark.iceberg.partitions import parse_terms
from barnabas.spark.tables.commits import BatchIdentity

SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string())])


def named(directory: Path, table: str = "lake.flights") -> TableName:
    """The name of a table whose catalog is in the directory."""
    properties = {"uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"{directory}/warehouse"}
    return TableName(table, properties=properties)


class Writer:
    """Writes batches as the sink does."""

    def __init__(
        self,
        name: TableName,
        *,
        schema: pa.Schema = SCHEMA,
        partition_by: tuple[str, ...] | None = None,
        merge_schema: bool = False,
    ) -> None:
        self.name = name
        terms = parse_terms(", ".join(partition_by), schema.names) if partition_by else None
        options = IcebergOptions(name, terms, merge_schema)
        self.plan: FilePlan = prepare_table(options, schema)

    def files(self, *ids: int) -> list[DataFile]:
        """Write rows to files, without a commit; the kind of a row is its last digit."""
        files = task_files(self.plan)
        kinds = [f"kind {each % 10}" for each in ids]
        files.write(pa.record_batch({"id": pa.array(ids, pa.int64()), "kind": kinds}))
        return files.close()

    def write(
        self, *ids: int, batch: int | None = None, query: str = "query", overwrite: bool = False
    ) -> bool:
        """Write and commit rows."""
        identity = None if batch is None else BatchIdentity(query, batch)
        return commit_files(self.name, self.plan, self.files(*ids), overwrite, identity)

    def write_rows(self, rows: pa.Table) -> None:
        """Write and commit rows of any columns."""
        files = task_files(self.plan)
        for batch in rows.to_batches():
            files.write(batch)
        commit_files(self.name, self.plan, files.close(), overwrite=False, identity=None)


def rows(name: TableName) -> list[int]:
    """The ids of all rows, sorted."""
    found: list[int] = open_table(name).scan().to_arrow()["id"].to_pylist()
    return sorted(found)


def live_files(table: Table) -> list[str]:
    """The addresses of the files of the current snapshot."""
    return [task.file.file_path for task in table.scan().plan_files()]


def stored_files(directory: Path) -> set[str]:
    """The names of the data files below a directory."""
    found = directory.rglob("*.parquet")
    return {path.name for path in found if path.parent.name != "_delta_log"}


def now_ms() -> int:
    """A time after all that was written."""
    return int(time.time() * 1000) + 1000
