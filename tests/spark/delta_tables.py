"""Delta tables that tests make and write without Spark."""

from __future__ import annotations

import base64
import json
import string
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from barnabas.spark.delta.columns import columns_of
from barnabas.spark.delta.files import WrittenFile, task_files
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.delta.plan import WritePlan, plan_write
from barnabas.spark.delta.table import commit_files, load_table, open_files
from barnabas.spark.tables.commits import BatchIdentity


class Writer:
    """Writes batches as the sink does: one plan, files, a commit."""

    def __init__(
        self,
        options: DeltaOptions,
        schema: pa.Schema,
        *,
        overwrite: bool = False,
    ) -> None:
        self._options = options
        table = load_table(options)
        self.plan: WritePlan = plan_write(
            options, columns_of(schema), table, removes_rows=overwrite
        )

    def files(self, batch: pa.RecordBatch) -> list[WrittenFile]:
        """Write rows to files, without a commit."""
        files = task_files(open_files(self._options), self.plan)
        files.write(batch)
        return files.close()

    def commit(self, files: list[WrittenFile], identity: BatchIdentity | None = None) -> bool:
        """Commit files; return whether they were added."""
        return commit_files(self._options, self.plan, files, identity)


def write(options: DeltaOptions, rows: pa.Table, *, overwrite: bool = False) -> None:
    """Write and commit rows."""
    writer = Writer(options, rows.schema, overwrite=overwrite)
    [batch] = rows.combine_chunks().to_batches()
    writer.commit(writer.files(batch))


def create_table(
    directory: Path,
    fields: list[dict[str, Any]],
    rows: pa.Table,
    *,
    protocol: dict[str, Any] | None = None,
    properties: dict[str, str] | None = None,
    deletion_vector: dict[str, Any] | None = None,
) -> DeltaOptions:
    """Create a table with one file by writing its log: of a protocol that no library here writes.

    Args:
        directory: the table's directory.
        fields: the columns, as the JSON of Delta's protocol.
        rows: rows of the first file.
        protocol: versions and features; version 1 for readers and 2 for writers without it.
        properties: properties of the table.
        deletion_vector: the deletion vector of the first file.
    """
    log = directory / "_delta_log"
    log.mkdir(parents=True)
    pq.write_table(rows, directory / "first.parquet")
    metadata = {
        "id": "11111111-1111-1111-1111-111111111111",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": properties or {},
        "createdTime": 1,
    }
    add = {
        "path": "first.parquet",
        "size": (directory / "first.parquet").stat().st_size,
        "partitionValues": {},
        "modificationTime": 1,
        "dataChange": True,
        "stats": json.dumps({"numRecords": rows.num_rows}),
        "deletionVector": deletion_vector,
    }
    actions = [
        {"commitInfo": {"timestamp": 1, "inCommitTimestamp": 1, "operation": "CREATE TABLE"}},
        {"protocol": protocol or {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
        {"add": add},
    ]
    lines = "".join(json.dumps(each) + "\n" for each in actions)
    (log / f"{0:020}.json").write_text(lines, encoding="utf-8")
    return DeltaOptions(str(directory))


def deletion_vector(*rows: int) -> dict[str, Any]:
    """A deletion vector of a few rows in the log itself: a Roaring bitmap, written in Z85."""
    container = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16)
    bitmap = container + struct.pack(f"<{len(rows)}H", *rows)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    ours = (
        string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
    )
    theirs = (
        string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
    )
    text = base64.b85encode(data).decode().translate(str.maketrans(theirs, ours))
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


def column(
    name: str, kind: Any = "long", *, nullable: bool = True, **metadata: Any
) -> dict[str, Any]:
    """A column, as the JSON of Delta's protocol."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def stored_rows(options: DeltaOptions) -> list[dict[str, Any]]:
    """All rows, sorted by their text."""
    table = DeltaTable(options.address)
    query = QueryBuilder().register("stored", table).execute("SELECT * FROM stored")
    found: list[dict[str, Any]] = pa.table(query.read_all()).to_pylist()
    return sorted(found, key=str)


def stored_columns(options: DeltaOptions) -> list[dict[str, Any]]:
    """The columns of the table, as the JSON of Delta's protocol."""
    found: list[dict[str, Any]] = json.loads(DeltaTable(options.address).schema().to_json())[
        "fields"
    ]
    return found


def listing(options: DeltaOptions) -> set[str]:
    """All files in the table's directory."""
    directory = Path(options.address)
    return {str(each.relative_to(directory)) for each in directory.rglob("*") if each.is_file()}
