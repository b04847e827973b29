"""Files that a task writes for a table, at least one per table partition.

The sinks for Delta and for Iceberg share this; each has its own kind of file.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from barnabas.spark.worker_python import freeze_imports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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
        partition_keys: returns what the rows are partitioned by, as columns; none for a table
            without partitions.
        open_file: opens a new file for the partition with these keys.
        file_bytes: size at which a file is closed.
    """

    def __init__(
        self,
        partition_keys: Callable[[pa.RecordBatch], Sequence[pa.Array]],
        open_file: Callable[[tuple[Any, ...]], OpenFile[Written_co]],
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._partition_keys = partition_keys
        self._open_file = open_file
        self._file_bytes = file_bytes
        # Open files by partition.
        self._open: dict[tuple[Any, ...], OpenFile[Written_co]] = {}
        # Closed files, and their descriptions in the same order.
        self._closed: list[OpenFile[Written_co]] = []
        self._written: list[Written_co] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows to the files of their partitions."""
        for values, rows in _split(batch, self._partition_keys(batch)):
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


def _split(
    batch: pa.RecordBatch, keys: Sequence[pa.Array]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the rows of each partition of the table, in their order."""
    import pyarrow as pa

    if not keys:
        yield (), batch
        return
    names = [str(index) for index in range(len(keys))]
    rows = pa.table([*keys, pa.array(range(batch.num_rows))], [*names, "row"])
    groups = rows.group_by(names, use_threads=False).aggregate([("row", "list")])
    columns = [[_comparable(each) for each in groups[name].to_pylist()] for name in names]
    for values, indexes in zip(zip(*columns, strict=True), groups["row_list"], strict=True):
        yield values, batch if groups.num_rows == 1 else batch.take(indexes.values)


def _comparable(value: Any) -> Any:
    """Return the value; of NaN, which is not equal to itself, return always the same object."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value
