"""Parquet files that a task writes for a Delta table, at least one per table partition.

The table's log assigns a file to its partition. Files are in directories of their partition all the
same, as other writers do: some readers take the values from the path.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.spark.delta.statistics import column_statistics
from barnabas.spark.delta.table_partitions import partition_directory, partition_text
from barnabas.spark.partitioned_files import PartitionedFiles

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs
    import pyarrow.parquet as pq

PartitionValues = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete file that is ready to be committed."""

    # Path relative to the table's directory.
    path: str
    size: int
    partition_values: PartitionValues
    modified_ms: int
    # Delta's statistics, as JSON.
    statistics: str


class _OpenFile:
    """One file that is being written."""

    __slots__ = ("_filesystem", "_metadata", "_output", "_path", "_stored", "_values", "_writer")

    def __init__(self, filesystem: pafs.FileSystem, stored: pa.Schema, values: PartitionValues):
        import pyarrow.parquet as pq

        self._path = f"{partition_directory(values)}part-{uuid.uuid4()}.snappy.parquet"
        self._filesystem = filesystem
        self._stored = stored
        self._values = values
        self._metadata: list[pq.FileMetaData] = []
        self._output = filesystem.open_output_stream(self._path)
        self._writer = pq.ParquetWriter(
            self._output, stored, compression="snappy", metadata_collector=self._metadata
        )

    def write(self, batch: pa.RecordBatch) -> int:
        """Append rows; return the bytes written to the file so far."""
        self._writer.write_batch(batch.select(self._stored.names))
        size: int = self._output.tell()
        return size

    def close(self) -> WrittenFile:
        self._writer.close()
        size = self._output.tell()
        self._output.close()
        return WrittenFile(
            path=self._path,
            size=size,
            partition_values=self._values,
            modified_ms=int(time.time() * 1000),
            statistics=json.dumps(column_statistics(self._metadata[0])),
        )

    def delete(self) -> None:
        if not self._output.closed:
            self._writer.close()
            self._output.close()
        self._filesystem.delete_file(self._path)


class TableFiles:
    """Writes batches of rows to files; `close` returns the files."""

    def __init__(
        self, filesystem: pafs.FileSystem, schema: pa.Schema, partition_by: tuple[str, ...]
    ) -> None:
        import pyarrow as pa

        self._schema = schema
        # Columns in the files: Delta stores partition values only in the log.
        stored = pa.schema([each for each in schema if each.name not in partition_by])

        def open_file(values: tuple[Any, ...]) -> _OpenFile:
            texts = {
                name: partition_text(value)
                for name, value in zip(partition_by, values, strict=True)
            }
            return _OpenFile(filesystem, stored, texts)

        self._files: PartitionedFiles[WrittenFile] = PartitionedFiles(
            lambda batch: [batch.column(name) for name in partition_by], open_file
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows; their columns are cast to the table's types."""
        self._files.write(conformed(batch, self._schema))

    def close(self) -> list[WrittenFile]:
        """Close all files and return them."""
        return self._files.close()

    def discard(self) -> None:
        """Delete all written files after a failed task."""
        self._files.discard()


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with Delta's types: Spark's timestamps are in the session's time zone."""
    import pyarrow as pa

    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(each.name).cast(each.type) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
