"""A task's Parquet files for a Delta table: one per partition of the table, rolled by size.

The table's log says which partition a file belongs to, so that the files lie flat in its directory.
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

# A file is closed once it is as large.
FILE_BYTES = 128 << 20
# Files open at once; what a task with more partitions holds is written out first.
_OPEN_FILES_MAX = 32

PartitionValues = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is ready to be committed."""

    # Within the table's directory.
    path: str
    size: int
    partition_values: PartitionValues
    modified_ms: int
    # Delta's statistics, as JSON.
    statistics: str


class _OpenFile:
    """One file being written."""

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
        """Add rows; returns the bytes in the file so far."""
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
    """Writes batches of rows; `close` gives what was written."""

    def __init__(
        self, filesystem: pafs.FileSystem, schema: pa.Schema, partition_by: tuple[str, ...]
    ) -> None:
        import pyarrow as pa

        self._filesystem = filesystem
        self._schema = schema
        self._partition_by = partition_by
        self._stored = pa.schema([each for each in schema if each.name not in partition_by])
        self._open: dict[tuple[Any, ...], _OpenFile] = {}
        self._written: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, whose columns are cast to the table's types."""
        for values, rows in self._split(conformed(batch, self._schema)):
            file = self._open.get(values)
            if file is None:
                file = self._open_file(values)
            if file.write(rows.select(self._stored.names)) >= FILE_BYTES:
                self._written.append(self._open.pop(values).close())

    def close(self) -> list[WrittenFile]:
        """Finish all files."""
        self._close_open()
        return self._written

    def discard(self) -> None:
        """Remove all that was written: the task failed."""
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
        """The rows of each partition of the table, in their order."""
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
    """The batch with the types that Delta has: Spark gives times in the session's zone."""
    import pyarrow as pa

    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(each.name).cast(each.type) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
