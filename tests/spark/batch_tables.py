"""Tables of both kinds, to which tests write batches as the tasks and the driver of a sink do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from barnabas.spark.delta.maintenance import MaintainedDelta
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.errors import DeltaTableError, IcebergTableError
from barnabas.spark.iceberg.maintenance import MaintainedIceberg
from barnabas.spark.table_sinks import DeltaSink, IcebergSink
from barnabas.spark.tables.commits import BatchIdentity
from barnabas.spark.tables.maintenance import MaintainedTable
from barnabas.spark.tables.rows import write_all
from barnabas.spark.tables.writers import TableTarget, WrittenFiles
from spark.iceberg_tables import named, rows

ROWS = StructType([StructField("id", LongType()), StructField("kind", StringType())])


class BatchTable(ABC):
    """A table that does not exist before its first target."""

    # What a sink raises for a table that does not fit.
    error: type[Exception]

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @abstractmethod
    def target(self, *, overwrite: bool = False) -> TableTarget:
        """Return the target that the sink makes for a batch."""

    @property
    @abstractmethod
    def maintained(self) -> MaintainedTable:
        """The table for maintenance."""

    @abstractmethod
    def ids(self) -> list[int]:
        """The ids of all rows, sorted."""

    def files(self, target: TableTarget, *ids: int) -> list[Any]:
        """Write the rows of one task to files, without a commit."""
        kinds = [f"kind {each % 10}" for each in ids]
        batch = pa.record_batch({"id": pa.array(ids, pa.int64()), "kind": pa.array(kinds)})
        return write_all(target.task_files("query"), [batch])

    def write(self, *ids: int, batch: int, query: str = "query", overwrite: bool = False) -> None:
        """Write a batch of one task, and commit it."""
        target = self.target(overwrite=overwrite)
        written = WrittenFiles(self.files(target, *ids), query)
        target.commit(written, BatchIdentity(query, batch))


class DeltaBatches(BatchTable):
    """A Delta table."""

    error = DeltaTableError

    @property
    def path(self) -> Path:
        """The directory of the table."""
        return self.directory / "table"

    def target(self, *, overwrite: bool = False) -> TableTarget:
        """Return the target of a batch."""
        return DeltaSink({"path": str(self.path)})._target(ROWS, overwrite)

    @property
    def maintained(self) -> MaintainedTable:
        """The table for maintenance."""
        return MaintainedDelta(DeltaOptions(str(self.path)))

    def ids(self) -> list[int]:
        """The ids of all rows, sorted."""
        found: list[int] = DeltaTable(self.path).to_pyarrow_table()["id"].to_pylist()
        return sorted(found)


class IcebergBatches(BatchTable):
    """An Iceberg table in a catalog of SQLite."""

    error = IcebergTableError

    def target(self, *, overwrite: bool = False) -> TableTarget:
        """Return the target of a batch."""
        name = named(self.directory)
        catalog = {f"catalog.{key}": value for key, value in name.properties.items()}
        return IcebergSink({"table": name.table, **catalog})._target(ROWS, overwrite)

    @property
    def maintained(self) -> MaintainedTable:
        """The table for maintenance."""
        return MaintainedIceberg(named(self.directory))

    def ids(self) -> list[int]:
        """The ids of all rows, sorted."""
        return rows(named(self.directory))


BATCH_KINDS: dict[str, type[BatchTable]] = {"delta": DeltaBatches, "iceberg": IcebergBatches}
