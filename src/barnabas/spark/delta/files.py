"""Parquet files that a task writes for a Delta table, at least one per table partition.

The table's log assigns a file to its partition, so all files are directly in the table's directory.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.spark.delta.statistics import column_statistics, partition_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    import pyarrow.fs as pafs
    import pyarrow.parquet as pq

# A file that reaches this size is closed.
FILE_BYTES = 128 << 20
# Maximum number of open files; a task with more partitions closes all files first.
_OPEN_FILES_MAX = 32

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

    __slots__ = ("_metadata", "_output", "_values", "_writer", "path")

    def __init__(self, filesystem: pafs.FileSystem, schema: pa.Schema, values: PartitionValues):
        import pyarrow.parquet as pq

        self.path = f"part-{uuid.uuid4()}.snappy.parquet"
        self._values = values
        self._metadata: list[pq.FileMetaData] = []
        self._output = filesystem.open_output_stream(self.path)
        self._writer = pq.ParquetWriter(
            self._output, schema, compression="snappy", metadata_collector=self._metadata
        )

    def write(self, batch: pa.RecordBatch) -> int:
        """Append rows; return the bytes written to the file so far."""
        self._writer.write_batch(batch)
        size: int = self._output.tell()
        return size

    def close(self) -> WrittenFile:
        self._writer.close()
        size = self._output.tell()
        self._output.close()
        return WrittenFile(
            path=self.path,
            size=size,
            partition_values=self._values,
            modified_ms=int(time.time() * 1000),
            statistics=json.dumps(column_statistics(self._metadata[0])),
        )

    def abandon(self) -> None:
        self._writer.close()
        self._output.close()


class TableFiles:
    """Writes batches of rows to files; `close` returns the files."""

    def __init__(
        self, filesystem: pafs.FileSystem, schema: pa.Schema, partition_by: tuple[str, ...]
    ) -> None:
        import pyarrow as pa

        self._filesystem = filesystem
        self._schema = schema
        self._partition_by = partition_by
        # Columns in the files: Delta stores partition values only in the log.
        self._stored = pa.schema([each for each in schema if each.name not in partition_by])
        # Open files by partition values.
        self._open: dict[tuple[Any, ...], _OpenFile] = {}
        # Closed files, to be committed or deleted.
        self._written: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows; their columns are cast to the table's types."""
        for values, rows in self._split(conformed(batch, self._schema)):
            file = self._open.get(values)
            if file is None:
                file = self._open_file(values)
            if file.write(rows.select(self._stored.names)) >= FILE_BYTES:
                self._written.append(self._open.pop(values).close())

    def close(self) -> list[WrittenFile]:
        """Close all files and return them."""
        self._close_open()
        return self._written

    def discard(self) -> None:
        """Delete all written files after a failed task."""
        paths = [each.path for each in self._written]
        for file in self._open.values():
            file.abandon()
            paths.append(file.path)
        for path in paths:
            self._filesystem.delete_file(path)

    def _close_open(self) -> None:
        while self._open:
            _, file = self._open.popitem()
            self._written.append(file.close())

    def _open_file(self, values: tuple[Any, ...]) -> _OpenFile:
        if len(self._open) >= _OPEN_FILES_MAX:
            self._close_open()
        texts = {
            name: partition_text(value)
            for name, value in zip(self._partition_by, values, strict=True)
        }
        file = _OpenFile(self._filesystem, self._stored, texts)
        self._open[values] = file
        return file

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """Yield the rows of each partition of the table, in their order."""
        if not self._partition_by:
            yield (), batch
            return
        columns = [batch.column(name).to_pylist() for name in self._partition_by]
        rows: dict[tuple[Any, ...], list[int]] = {}
        for index, values in enumerate(zip(*columns, strict=True)):
            rows.setdefault(values, []).append(index)
        if len(rows) == 1:
            yield next(iter(rows)), batch
            return
        for values, indexes in rows.items():
            yield values, batch.take(indexes)


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with Delta's types: Spark's timestamps are in the session's time zone."""
    import pyarrow as pa

    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(each.name).cast(each.type) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
