"""Staged rows of an upsert: tasks write them to files, and the driver reads and merges them.

The files are in a directory of the table whose name begins with an underscore, so readers ignore
it. The table never names these files. The driver removes them after the merge; `barnabas tables
expire` removes those of killed jobs.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.spark.errors import MergeError
from barnabas.spark.tables.merge_options import DELETED, parse_condition
from barnabas.spark.tables.rows import ParquetFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from barnabas.spark.tables.commits import BatchIdentity
    from barnabas.spark.tables.merge_options import MergeOptions
    from barnabas.spark.tables.rows import FileStorage
    from barnabas.spark.tables.writers import WrittenFiles

STAGING_DIRECTORY = "_barnabas_staging"


class SortedKeys:
    """The different values of one key column, in their order.

    Statistics of a file tell by them whether the file can have a key of the batch.
    """

    def __init__(self, column: pa.ChunkedArray | pa.Array) -> None:
        self._values: list[Any] = sorted(column.unique().to_pylist())

    def within(self, low: Any, high: Any) -> tuple[Any, Any] | None:
        """Return the lowest and the highest value from `low` to `high`; None without one."""
        first, end = bisect_left(self._values, low), bisect_right(self._values, high)
        return (self._values[first], self._values[end - 1]) if first < end else None


class MergeTarget(Protocol):
    """A table of either kind into which batches are merged; it travels to the executors."""

    @property
    def merge(self) -> MergeOptions:
        """The options by which rows change the table."""

    @property
    def staging_directory(self) -> str:
        """Path of the directory for staged rows."""

    def open_storage(self) -> FileStorage:
        """Connect to the file system of the table."""

    def create_if_missing(self) -> None:
        """Create the table without rows if it does not exist."""

    def merge_rows(self, rows: pa.Table, identity: BatchIdentity | None) -> None:
        """Merge one row for each key in one commit, unless the table has the batch already.

        Args:
            rows: staged rows.
            identity: identity of the batch, None if Spark does not repeat it.
        """


@dataclass(frozen=True, slots=True)
class UpsertTarget:
    """Merges the rows of a job or batch into a table."""

    table: MergeTarget
    # Types of the rows' columns.
    rows: pa.Schema

    def task_files(self, query_id: str) -> StagedFile:
        """Return the file for the rows of one task."""
        table = self.table
        storage, label = table.open_storage(), query_id or "job"
        return StagedFile(storage, table.staging_directory, table.merge, self.rows, label)

    def commit(self, written: WrittenFiles, identity: BatchIdentity | None) -> None:
        """Merge the rows of all tasks, unless the table already has the batch."""
        if not written.files:
            # Without rows there is nothing to commit, and the same holds for a repetition of the
            # batch. Readers find a new table already now.
            self.table.create_if_missing()
            return
        storage = self.table.open_storage()
        rows = latest_rows(read_staged(storage, written.files), self.table.merge)
        self.table.merge_rows(rows, identity)
        for path in written.files:
            storage.delete_file(path)

    def abort(self, written: WrittenFiles, *, has_failed_task: bool) -> None:
        """Delete the staged rows after a task or the merge failed."""
        storage = self.table.open_storage()
        for path in written.files:
            storage.delete_file(path)


class StagedFile:
    """The staged rows of one task.

    Args:
        storage: the file system.
        directory: path of the staging directory.
        merge: how the rows are merged.
        rows: types of the rows' columns.
        label: first part of the file's name, so that people see which query wrote it.
    """

    def __init__(
        self,
        storage: FileStorage,
        directory: str,
        merge: MergeOptions,
        rows: pa.Schema,
        label: str,
    ) -> None:
        self._storage = storage
        self._path = f"{directory}/{label}-{uuid.uuid4()}.parquet"
        self._merge = merge
        self._rows = rows
        self._condition = None
        if merge.delete_when is not None:
            self._condition = parse_condition(merge.delete_when, rows)
        # None before the first row.
        self._file: ParquetFile[str] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows, and whether each deletes its key.

        Raises:
            MergeError: a key or sequence is NULL, or a sequence is NaN.
        """
        import pyarrow as pa

        batch = pa.RecordBatch.from_arrays(
            [batch.column(each.name).cast(each.type) for each in self._rows],
            schema=pa.schema([each.with_nullable(True) for each in self._rows]),
        )
        self._check_keys(batch)
        names = [
            name
            for name in batch.schema.names
            if name not in self._merge.except_columns or name == self._merge.sequence
        ]
        staged = batch.select(names).append_column(DELETED, self._deleted(batch))
        if self._file is None:
            self._file = ParquetFile(
                self._storage,
                self._path,
                staged.schema,
                lambda _size, _metadata: self._path,
                compression="lz4",
            )
        self._file.write(staged)

    def close(self) -> list[str]:
        """Complete the file and return its path; return an empty list if there were no rows."""
        return [] if self._file is None else [self._file.close()]

    def discard(self) -> None:
        """Delete the file after a failed task."""
        if self._file is not None:
            self._file.delete()

    def _deleted(self, batch: pa.RecordBatch) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.dataset as pads

        if self._condition is None:
            return pa.repeat(pa.scalar(False), batch.num_rows)
        found = pads.dataset(batch).to_table(columns={DELETED: self._condition})
        return pc.fill_null(found[DELETED].combine_chunks(), False)

    def _check_keys(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        sequence = self._merge.sequence
        for name in (*self._merge.keys, *(() if sequence is None else (sequence,))):
            count = batch.column(name).null_count
            is_float = pa.types.is_floating(batch.schema.field(name).type)
            nan_count = pc.sum(pc.is_nan(batch.column(name))).as_py() if is_float else 0
            if nan_count:
                raise MergeError(
                    f"{name} is NaN in {nan_count} rows, and sequenceColumn names it: NaN has no"
                    " order, so filter these rows out"
                )
            if count:
                option = "mergeKeys" if name in self._merge.keys else "sequenceColumn"
                raise MergeError(
                    f"{name} is NULL in {count} rows, and {option} names it: filter these rows out"
                )


def read_staged(storage: FileStorage, paths: Iterable[str]) -> pa.Table:
    """Return the staged rows of all tasks; there is at least one path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for path in paths:
        with storage.open_input_file(path) as source:
            tables.append(pq.ParquetFile(source).read())
    return pa.concat_tables(tables)


def latest_rows(staged: pa.Table, merge: MergeOptions) -> pa.Table:
    """Return one row for each key: the row with the highest sequence.

    Equal rows count once. Spark does not keep the order of rows, so nothing else could decide.

    Raises:
        MergeError: two rows of a key differ and have the same sequence, or there is no sequence.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not staged.num_rows:
        return staged
    order = [*merge.keys, *([merge.sequence] if merge.sequence else [])]
    compared = staged.select(order)
    indexes = pc.sort_indices(compared, [(name, "ascending") for name in order])
    compared = compared.take(indexes)

    def same_as_next(names: Iterable[str]) -> pa.Array:
        found = pa.chunked_array([pa.repeat(pa.scalar(True), staged.num_rows - 1)])
        for name in names:
            column = compared[name]
            found = pc.and_(found, pc.equal(column.slice(1), column.slice(0, len(column) - 1)))
        return pa.concat_arrays([*found.chunks, pa.array([False])])

    has_next = same_as_next(merge.keys)
    last = indexes.filter(pc.invert(has_next))
    _check_ties(staged, indexes, has_next, same_as_next(order), merge)
    return staged.take(last)


def _check_ties(
    staged: pa.Table,
    indexes: pa.Array,
    has_next: pa.Array,
    ties: pa.Array,
    merge: MergeOptions,
) -> None:
    """Refuse rows that differ from the last row of their key although they have its sequence.

    Args:
        staged: all rows.
        indexes: their order by key and sequence.
        has_next: for each in this order: whether the next row has the same key.
        ties: whether the next row has the same key and sequence.
        merge: the keys and the sequence.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    positions = pc.indices_nonzero(ties).to_pylist()
    tied = sorted({*positions, *(each + 1 for each in positions)})
    rows = dict(
        zip(tied, staged.take(indexes.take(pa.array(tied, pa.int64()))).to_pylist(), strict=True)
    )
    # First row of those that are known to have the highest sequence of their key.
    top = -1
    for position in reversed(positions):
        if has_next[position + 1].as_py() and position + 1 != top:
            # A row with a higher sequence follows.
            continue
        top = position
        first, second = rows[position], rows[position + 1]
        if first[DELETED] and second[DELETED]:
            continue
        # NaN is not equal to itself, and its text is.
        if repr(first) != repr(second):
            key = ", ".join(f"{name}={first[name]!r}" for name in merge.keys)
            problem = f"the batch has two different rows of the key {key}"
            if merge.sequence is None:
                raise MergeError(
                    f"{problem}: set sequenceColumn to a column whose higher value is newer"
                )
            raise MergeError(
                f"{problem} with the same {merge.sequence}={first[merge.sequence]!r}: set"
                " sequenceColumn to a column that differs between changes of a key"
            )
