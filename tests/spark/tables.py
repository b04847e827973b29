"""Tables of either kind, which the same tests write, read and maintain."""

from __future__ import annotations

import json
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import duckdb
import duckdb_ext
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.table.snapshots import Snapshot

from barnabas.spark.delta.maintenance import MaintainedDelta
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.iceberg.catalog import open_table
from barnabas.spark.iceberg.commit import BATCH_ID
from barnabas.spark.iceberg.maintenance import MaintainedIceberg
from barnabas.spark.tables.maintenance import MaintainedTable
from spark.iceberg_tables import named, now_ms, stored_files


class SinkTable(ABC):
    """A table in a directory, and everything that can be done with it."""

    # The name for `format`.
    sink: str

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    @abstractmethod
    def target(self) -> str:
        """What `start` takes."""

    @property
    @abstractmethod
    def options(self) -> dict[str, str]:
        """Options of the sink."""

    @property
    @abstractmethod
    def words(self) -> list[str]:
        """The table for `barnabas tables`."""

    @property
    @abstractmethod
    def maintained(self) -> MaintainedTable:
        """The table for maintenance."""

    @abstractmethod
    def arrow(self) -> pa.Table:
        """All rows."""

    def rows(self) -> list[dict[str, Any]]:
        """All rows as dictionaries."""
        found: list[dict[str, Any]] = self.arrow().to_pylist()
        return found

    def files(self) -> set[str]:
        """The names of all data files in the directory."""
        return stored_files(self.directory)

    @abstractmethod
    def polars(self) -> pl.LazyFrame:
        """All rows, for Polars."""

    @abstractmethod
    def duckdb(self) -> str:
        """All rows, as a table in DuckDB's SQL."""

    @abstractmethod
    def batches(self) -> list[int]:
        """The batch of each commit that has one, in the order of the commits."""

    @abstractmethod
    def cut_ms(self) -> int:
        """A time before which nothing was written that is not committed yet, with one stream."""

    def command(self, command: str, *more: str) -> subprocess.Popen[str]:
        """Start `barnabas tables`."""
        words = [sys.executable, "-m", "barnabas", "tables", command, *self.words, *more]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class DeltaSinkTable(SinkTable):
    """A Delta table."""

    sink = "barnabas_delta"

    @property
    def target(self) -> str:
        return str(self.directory / "out")

    @property
    def options(self) -> dict[str, str]:
        return {}

    @property
    def words(self) -> list[str]:
        return [self.target]

    @property
    def maintained(self) -> MaintainedTable:
        return MaintainedDelta(DeltaOptions(self.target))

    def arrow(self) -> pa.Table:
        return DeltaTable(self.target).to_pyarrow_table()

    def polars(self) -> pl.LazyFrame:
        return pl.scan_delta(self.target)

    def duckdb(self) -> str:
        return f"delta_scan('{self.target}')"

    def batches(self) -> list[int]:
        logs = sorted(Path(self.target, "_delta_log").glob("*.json"))
        actions = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
        return [int(each["txn"]["version"]) for each in actions if "txn" in each]

    def cut_ms(self) -> int:
        """Below an hour, only files that a version named are removed."""
        return now_ms()


class IcebergSinkTable(SinkTable):
    """An Iceberg table in a catalog of SQLite."""

    sink = "barnabas_iceberg"

    @property
    def target(self) -> str:
        return "lake.flights"

    @property
    def options(self) -> dict[str, str]:
        return {f"catalog.{key}": value for key, value in named(self.directory).properties.items()}

    @property
    def words(self) -> list[str]:
        properties = named(self.directory).properties.items()
        given = [word for key, value in properties for word in ("-c", f"{key}={value}")]
        return [self.target, *given]

    @property
    def maintained(self) -> MaintainedTable:
        return MaintainedIceberg(named(self.directory))

    def arrow(self) -> pa.Table:
        return open_table(named(self.directory)).scan().to_arrow()

    def polars(self) -> pl.LazyFrame:
        return pl.scan_iceberg(open_table(named(self.directory)))

    def duckdb(self) -> str:
        table = open_table(named(self.directory))
        return f"iceberg_scan('{table.metadata_location.removeprefix('file://')}')"

    def batches(self) -> list[int]:
        return [int(each.summary[BATCH_ID] or -1) for each in self._of_batches() if each.summary]

    def cut_ms(self) -> int:
        """The tasks of the next batch began after the commit of the last one."""
        return max(each.timestamp_ms for each in self._of_batches())

    def _of_batches(self) -> list[Snapshot]:
        snapshots = open_table(named(self.directory)).snapshots()
        return [each for each in snapshots if each.summary and each.summary.get(BATCH_ID)]


KINDS: dict[str, type[DeltaSinkTable | IcebergSinkTable]] = {
    "delta": DeltaSinkTable,
    "iceberg": IcebergSinkTable,
}


def duckdb_connection() -> duckdb.DuckDBPyConnection:
    """DuckDB with its extensions for both kinds, from packages; nothing is downloaded."""
    directory = Path(next(iter(duckdb_ext.__path__))) / "extensions"
    connection = duckdb.connect(
        config={"extension_directory": str(directory), "autoinstall_known_extensions": False}
    )
    for extension in ("avro", "delta", "iceberg"):
        connection.load_extension(extension)
    return connection
