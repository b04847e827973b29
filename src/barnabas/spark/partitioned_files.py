"""Files that a task writes for a table, at least one per table partition.

The sinks for Delta and for Iceberg share this; each has its own kind of file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from barnabas.spark.worker_python import freeze_imports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

# A file that reaches this size is closed.
FILE_BYTES = 128 << 20
# Maximum number of open files; a task with more partitions closes all files first.
_OPEN_FILES_MAX = 32

Written = TypeVar("Written")
Written_co = TypeVar("Written_co", covariant=True)


class OpenFile(Protocol[Written_co]):
    """One file that is being written."""

    def write(self, batch: pa.RecordBatch) -> int:
        """Append rows; return the bytes written to the file so far."""

    def close(self) -> Written_co:
        """Complete the file, and return its description."""

    def delete(self) -> None:
        """Close the file if it is open, and delete it."""


class TaskFiles(Protocol[Written]):
    """The files of one task for one table."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows to the files."""

    def close(self) -> list[Written]:
        """Close all files and return their descriptions."""

    def discard(self) -> None:
        """Delete all written files."""


def write_all(files: TaskFiles[Written], batches: Iterable[pa.RecordBatch]) -> list[Written]:
    """Write rows, close the files and return their descriptions; delete them after an error."""
    freeze_imports()
    try:
        for batch in batches:
            if batch.num_rows:
                files.write(batch)
        return files.close()
    except BaseException:
        files.discard()
        raise


class PartitionedFiles(Generic[Written_co]):
    """Writes batches of rows to files; `close` returns the descriptions of the files.

    Args:
        partition_by: columns that the table is partitioned by.
        open_file: opens a new file for the partition with these values.
        file_bytes: size at which a file is closed.
    """

    def __init__(
        self,
        partition_by: tuple[str, ...],
        open_file: Callable[[tuple[Any, ...]], OpenFile[Written_co]],
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._partition_by = partition_by
        self._open_file = open_file
        self._file_bytes = file_bytes
        # Open files by partition values.
        self._open: dict[tuple[Any, ...], OpenFile[Written_co]] = {}
        # Closed files, and their descriptions in the same order.
        self._closed: list[OpenFile[Written_co]] = []
        self._written: list[Written_co] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows to the files of their partitions."""
        for values, rows in self._split(batch):
            file = self._open.get(values)
            if file is None:
                if len(self._open) >= _OPEN_FILES_MAX:
                    self._close_open()
                file = self._open_file(values)
                self._open[values] = file
            if file.write(rows) >= self._file_bytes:
                self._close(self._open.pop(values))

    def close(self) -> list[Written_co]:
        """Close all files and return their descriptions."""
        self._close_open()
        return self._written

    def discard(self) -> None:
        """Delete all files after a failed task."""
        for file in [*self._closed, *self._open.values()]:
            file.delete()

    def _close_open(self) -> None:
        while self._open:
            _, file = self._open.popitem()
            self._close(file)

    def _close(self, file: OpenFile[Written_co]) -> None:
        self._closed.append(file)
        self._written.append(file.close())

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
