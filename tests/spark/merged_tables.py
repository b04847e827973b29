"""Tables of either kind into which tests merge batches without Spark, as the sink does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from barnabas.spark.delta.columns import columns_of
from barnabas.spark.delta.maintenance import MaintainedDelta
from barnabas.spark.delta.merge import DeltaMerge
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.iceberg.catalog import IcebergOptions, open_table
from barnabas.spark.iceberg.layout import prepare_table
from barnabas.spark.iceberg.maintenance import MaintainedIceberg
from barnabas.spark.iceberg.merge import IcebergMerge
from barnabas.spark.iceberg.partitions import parse_terms
from barnabas.spark.tables.commits import BatchIdentity
from barnabas.spark.tables.maintenance import MaintainedTable
from barnabas.spark.tables.merge_options import MergeOptions
from barnabas.spark.tables.rows import write_all
from barnabas.spark.tables.staging import MergeTarget, StagedFile, latest_rows, read_staged
from spark.iceberg_tables import named

Row = dict[str, Any]


class MergedTable(ABC):
    """A table and the options of its upserts.

    Args:
        directory: where the table is.
        rows: types of the rows.
        merge: options of the upserts.
        partition_by: terms that the table is partitioned by.
    """

    def __init__(
        self,
        directory: Path,
        rows: pa.Schema,
        merge: MergeOptions,
        partition_by: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory
        self.schema = rows
        self.merge = merge
        self.partition_by = partition_by
        stored = [each for each in rows if each.name not in merge.except_columns]
        self.stored = pa.schema(stored)
        self.target = self._target()

    @abstractmethod
    def _target(self) -> MergeTarget:
        """Return the table as the sink has it."""

    @property
    @abstractmethod
    def maintained(self) -> MaintainedTable:
        """The table for maintenance."""

    @abstractmethod
    def arrow(self) -> pa.Table:
        """All rows of the table."""

    @abstractmethod
    def require(self, column: str) -> None:
        """Let a column of the existing table accept no NULL."""

    def stage(self, *tasks: list[Row]) -> list[str]:
        """Write the rows of each task to a staged file; return the files."""
        paths = []
        for rows in tasks:
            file = StagedFile(
                self.target.open_storage(),
                self.target.staging_directory,
                self.merge,
                self.schema,
                "query",
            )
            paths += write_all(file, [pa.RecordBatch.from_pylist(rows, self.schema)])
        return paths

    def latest(self, *tasks: list[Row]) -> pa.Table:
        """The rows that count of a batch, as the driver reads them."""
        staged = read_staged(self.target.open_storage(), self.stage(*tasks))
        return latest_rows(staged, self.merge)

    def write(self, *tasks: list[Row], batch: int | None = None, query: str = "query") -> None:
        """Merge a batch whose rows come from tasks."""
        if any(tasks):
            identity = None if batch is None else BatchIdentity(query, batch)
            self.target.merge_rows(self.latest(*tasks), identity)

    def rows(self) -> list[Row]:
        """All rows, sorted."""
        found: list[Row] = self.arrow().to_pylist()
        return sorted(found, key=lambda row: [repr(row[name]) for name in self.merge.keys])


class MergedDelta(MergedTable):
    """A Delta table."""

    @property
    def path(self) -> str:
        """Address of the table."""
        return str(self.directory / "delta")

    def _target(self) -> DeltaMerge:
        options = DeltaOptions(self.path, self.partition_by or None)
        return DeltaMerge(options, self.merge, columns_of(self.stored))

    @property
    def maintained(self) -> MaintainedTable:
        return MaintainedDelta(DeltaOptions(self.path))

    def arrow(self) -> pa.Table:
        if not DeltaTable.is_deltatable(self.path):
            return self.stored.empty_table()
        return DeltaTable(self.path).to_pyarrow_table()

    def require(self, column: str) -> None:
        DeltaTable(self.path).alter.add_constraint({"required": f"{column} IS NOT NULL"})


class MergedIceberg(MergedTable):
    """An Iceberg table in a catalog of SQLite."""

    def _target(self) -> IcebergMerge:
        name = named(self.directory)
        terms = parse_terms(", ".join(self.partition_by), self.stored.names)
        options = IcebergOptions(name, terms or None)
        return IcebergMerge(name, prepare_table(options, self.stored), self.merge)

    @property
    def maintained(self) -> MaintainedTable:
        return MaintainedIceberg(named(self.directory))

    def arrow(self) -> pa.Table:
        return open_table(named(self.directory)).scan().to_arrow()

    def require(self, column: str) -> None:
        with open_table(named(self.directory)).update_schema(
            allow_incompatible_changes=True
        ) as update:
            update.make_column_optional(column)
            update._set_column_requirement(column, required=True)
        self.target = self._target()


MERGED_KINDS: dict[str, type[MergedDelta | MergedIceberg]] = {
    "delta": MergedDelta,
    "iceberg": MergedIceberg,
}
