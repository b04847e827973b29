"""Files that delete rows of Iceberg tables (merge on read), which no library here writes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from barnabas.spark.iceberg.catalog import TableName, open_table

# Columns of a file of position deletes, with their ids of Iceberg's specification.
_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)


class _DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of files that delete rows."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_positions(name: TableName, positions: Sequence[tuple[str, int]]) -> None:
    """Delete rows of a table without partitions by a file of their files and places."""
    rows = pa.table([*zip(*positions, strict=True)], schema=_POSITIONS)
    _commit(name, rows, DataFileContent.POSITION_DELETES, None)


def delete_equal(name: TableName, column: str, values: Sequence[int]) -> None:
    """Delete rows of a table without partitions by a file of values in a column."""
    field = open_table(name).schema().find_field(column)
    schema = pa.schema(
        [pa.field(column, pa.int64(), False, {"PARQUET:field_id": str(field.field_id)})]
    )
    rows = pa.table([pa.array(values, pa.int64())], schema=schema)
    _commit(name, rows, DataFileContent.EQUALITY_DELETES, [field.field_id])


def _commit(
    name: TableName, rows: pa.Table, content: DataFileContent, equality_ids: list[int] | None
) -> None:
    table = open_table(name)
    output = _output(table, "data", "parquet")
    with output.create() as stream:
        pq.write_table(rows, stream)
    file = DataFile.from_args(
        content=content,
        file_path=output.location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=len(output),
        equality_ids=equality_ids,
    )
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        writer = _DeleteManifestWriter(
            table.spec(),
            table.schema(),
            _output(table, "metadata", "avro"),
            append.snapshot_id,
            "deflate",
        )
        with writer:
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=append.snapshot_id, data_file=file
                )
            )
        manifests = [*append._existing_manifests(), writer.to_manifest_file()]
        append._existing_manifests = lambda: manifests


def _output(table: Table, directory: str, ending: str) -> OutputFile:
    return table.io.new_output(f"{table.location()}/{directory}/{uuid.uuid4()}.{ending}")
