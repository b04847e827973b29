"""Merges a batch into an Iceberg table by copy on write, exactly once.

`pyiceberg` has no MERGE with conditions. A merge here looks for the keys of the batch in the files
whose partitions and statistics can have them. A file with rows that change is written anew, and one
commit replaces the files and adds the new rows. The commit has the identity of the batch as that of
appended files.

If another commit comes between, the merge is tried again on the new state. What was read of files
that are still in the table holds, because files never change. So a retry costs little.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.spark.errors import IcebergTableError
from barnabas.spark.iceberg.commit import (
    batch_property,
    check_plan,
    has_batch,
    identity_properties,
    loaded,
    retried,
)
from barnabas.spark.iceberg.files import IcebergStorage, conformed, read_file, task_files
from barnabas.spark.tables.merge_options import DELETED
from barnabas.spark.tables.rows import write_all
from barnabas.spark.tables.staging import STAGING_DIRECTORY, SortedKeys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

    from barnabas.spark.iceberg.catalog import TableName
    from barnabas.spark.iceberg.layout import FilePlan
    from barnabas.spark.tables.commits import BatchIdentity
    from barnabas.spark.tables.merge_options import MergeOptions

# Property of a snapshot: how many files were searched for keys.
FILES_READ = "barnabas.merge-files-read"
# Up to so many keys a scan names each; pyiceberg ignores longer lists when it looks at files.
_LISTED_KEYS_MAX = 200
# Columns of joined keys: place of a row in its batch of the file, or in the merged rows; sequences.
_PLACE, _ROW, _OLD, _NEW = ("__barnabas_" + each for each in ("place", "row", "old", "new"))


@dataclass(frozen=True, slots=True)
class IcebergMerge:
    """An Iceberg table into which batches are merged."""

    name: TableName
    plan: FilePlan
    merge: MergeOptions

    @property
    def staging_directory(self) -> str:
        """Path of the directory for staged rows; `tables expire` looks for old files there."""
        from pyiceberg.table.locations import load_location_provider

        locations = load_location_provider(self.plan.location, self.plan.table_properties)
        return f"{locations.data_path}/{STAGING_DIRECTORY}"

    def open_storage(self) -> IcebergStorage:
        """Connect to the file system of the table."""
        return IcebergStorage(self.plan.open_files())

    def create_if_missing(self) -> None:
        """Do nothing: the plan of the files has created the table."""

    def merge_rows(self, rows: pa.Table, identity: BatchIdentity | None) -> None:
        """Merge one row for each key in one commit.

        Raises:
            IcebergTableError: the table was changed, is newer than the checkpoint, or has a format
                whose rows have ids.
            CommitFailedException: other writers changed the table during all attempts.
        """
        merge = _Merge(self, rows, identity)
        # The first search for keys may take longer than the time for all attempts.
        merge.search(loaded(self.name))
        retried(merge.attempt)
        merge.delete_unused()


@dataclass(slots=True)
class _Searched:
    """The result of searching a file for keys of the batch. Rows are numbers of merged rows."""

    # Rows that are older than the row of their key in the file.
    late: set[int] = field(default_factory=set)
    # Whether rows of the file change.
    is_changed: bool = False
    # Rows of the batch that are in the files that replace it.
    placed: set[int] = field(default_factory=set)
    replacements: list[DataFile] = field(default_factory=list)


class _Merge:
    """One batch until it is committed."""

    def __init__(
        self, target: IcebergMerge, rows: pa.Table, identity: BatchIdentity | None
    ) -> None:
        import pyarrow as pa
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._target = target
        self._identity = identity
        schema, _ = target.plan.parsed()
        self._keys = target.merge.keys
        self._sequence = target.merge.stored_sequence
        # A row that deletes its key may have no values in required columns.
        stored = pa.schema(
            [
                each.with_nullable(True)
                for each in schema_to_pyarrow(schema, include_field_ids=False)
            ]
        )
        # The rows with the table's columns and types, and which of them delete their key.
        self._rows = pa.Table.from_batches(
            [conformed(each, stored) for each in rows.combine_chunks().to_batches()], stored
        )
        self._deleted = {n for n, each in enumerate(rows[DELETED].to_pylist()) if each}
        self._sorted = {name: SortedKeys(_physical(self._rows[name])) for name in self._keys}
        # By the paths of a file and of the files with its deletions.
        self._searched: dict[frozenset[str], _Searched] = {}
        # By snapshot of an attempt: the files that it adds.
        self._attempted: dict[int, list[DataFile]] = {}
        # The files that the table has from this merge; None if the merge is not known to be done.
        self._added: list[DataFile] | None = None

    def attempt(self) -> None:
        """Commit the batch to the current state of the table, unless the table has it."""
        table = loaded(self._target.name)
        for snapshot, files in self._attempted.items():
            if table.snapshot_by_id(snapshot):
                # An earlier attempt succeeded, and its response was lost.
                self._added = files
                return
        found = self.search(table)
        if found is None:
            return
        old = [task for task, each in found if each.is_changed]
        done = set(self._deleted).union(*(each.late | each.placed for _, each in found))
        new = [file for _, each in found for file in each.replacements]
        new += self._write(self._taken(set(range(self._rows.num_rows)) - done))
        self._commit(table, old, new, len(found))
        self._added = new

    def search(self, table: Table) -> list[tuple[FileScanTask, _Searched]] | None:
        """Look for the keys in all files that can have them; None if the table has the batch.

        Files that change are written anew. Files that were searched before are not read again.
        """
        name = self._target.name.table
        if self._identity is not None and has_batch(table, self._identity, name):
            return None
        check_plan(table, self._target.plan, name)
        if table.format_version > 2:
            raise IcebergTableError(
                f"{name} has format version {table.format_version}, whose rows have ids that a"
                " merge here would change: use a table of format version 2"
            )
        tasks = [each for each in self._plan(table) if self._can_have_keys(each.file, table)]
        before = [self._searched.get(_identity_of(each)) for each in tasks]
        placed = set().union(*(each.placed for each in before if each is not None))
        found = []
        for task, searched in zip(tasks, before, strict=True):
            if searched is None:
                searched = self._search_file(table, task, placed)
                self._searched[_identity_of(task)] = searched
                placed |= searched.placed
            found.append((task, searched))
        return found

    def delete_unused(self) -> None:
        """Delete the files that an earlier attempt wrote for another state of the table.

        If the table has the batch from an attempt whose end is unknown, no file is deleted.
        """
        if self._added is None and self._attempted:
            return
        used = {each.file_path for each in self._added or ()}
        written = [file for files in self._attempted.values() for file in files]
        written += [file for each in self._searched.values() for file in each.replacements]
        storage = self._target.open_storage()
        for path in {each.file_path for each in written} - used:
            storage.delete_file(path)

    def _plan(self, table: Table) -> Iterator[FileScanTask]:
        from pyiceberg.expressions import AlwaysTrue, And

        condition: BooleanExpression = AlwaysTrue()
        for name in self._keys:
            condition = And(condition, _key_condition(name, _physical(self._rows[name])))
        yield from table.scan(row_filter=condition).plan_files()

    def _can_have_keys(self, file: DataFile, table: Table) -> bool:
        """Return whether the statistics of a file leave room for a key of the batch."""
        from pyiceberg.conversions import from_bytes

        for name, keys in self._sorted.items():
            column = table.schema().find_field(name)
            low = (file.lower_bounds or {}).get(column.field_id)
            high = (file.upper_bounds or {}).get(column.field_id)
            if low is None or high is None:
                continue
            kind: Any = column.field_type
            if keys.within(from_bytes(kind, low), from_bytes(kind, high)) is None:
                return False
        return True

    def _search_file(self, table: Table, task: FileScanTask, placed: set[int]) -> _Searched:
        """Search one file, and write it anew if rows change.

        Args:
            table: the table.
            task: the file.
            placed: rows of the batch that are in the replacements of other files.
        """
        import pyarrow as pa

        names = [*self._keys, *([self._sequence] if self._sequence else [])]
        found = _Searched()
        updated: set[int] = set()
        # For each batch of the file: the rows that stay.
        kept: list[pa.Array] = []
        for batch in read_file(table, task, table.schema().select(*names)):
            superseded, rows, late = self._match(batch)
            updated |= rows
            found.late |= late
            stays = [place not in superseded for place in range(batch.num_rows)]
            kept.append(pa.array(stays, pa.bool_()))
            found.is_changed = found.is_changed or bool(superseded)
        if not found.is_changed:
            return found
        found.placed = updated - self._deleted - found.late - placed
        batches = read_file(table, task, table.schema())
        rest = (batch.filter(each) for batch, each in zip(batches, kept, strict=True))
        found.replacements = self._write(itertools.chain(rest, self._taken(found.placed)))
        return found

    def _match(self, batch: pa.RecordBatch) -> tuple[set[int], set[int], set[int]]:
        """Find the keys of the batch in rows of the table.

        Returns:
            The places of the rows that change, the rows that change them, and the late rows.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        stored: dict[str, Any] = {
            name: batch.column(name).cast(self._rows.schema.field(name).type) for name in self._keys
        }
        given: dict[str, Any] = {name: self._rows[name] for name in self._keys}
        if self._sequence is not None:
            stored[_OLD] = batch.column(self._sequence)
            given[_NEW] = self._rows[self._sequence]
        stored[_PLACE] = pa.array(range(batch.num_rows), pa.int64())
        given[_ROW] = pa.array(range(self._rows.num_rows), pa.int64())
        joined = pa.table(stored).join(pa.table(given), list(self._keys), join_type="inner")
        is_late = pa.nulls(len(joined), pa.bool_()).fill_null(False)
        if self._sequence is not None:
            is_late = pc.fill_null(pc.less(joined[_NEW], joined[_OLD]), False)
        newer = joined.filter(pc.invert(is_late))
        return (
            set(newer[_PLACE].to_pylist()),
            set(newer[_ROW].to_pylist()),
            set(joined.filter(is_late)[_ROW].to_pylist()),
        )

    def _write(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        return write_all(task_files(self._target.plan), batches)

    def _taken(self, rows: Iterable[int]) -> list[pa.RecordBatch]:
        """Return these rows of the batch, in their order."""
        import pyarrow as pa

        places = pa.array(sorted(rows), pa.int64())
        batches: list[pa.RecordBatch] = self._rows.take(places).combine_chunks().to_batches()
        return batches

    def _commit(
        self, table: Table, old: list[FileScanTask], new: list[DataFile], files_read: int
    ) -> None:
        properties = {**identity_properties(self._identity), FILES_READ: str(files_read)}
        with table.transaction() as transaction:
            snapshot = None
            if old or new:
                update = transaction.update_snapshot(properties)
                with update.overwrite() if old else update.merge_append() as change:
                    for task in old:
                        change.delete_data_file(task.file)
                    for file in new:
                        change.append_data_file(file)
                snapshot = change.snapshot_id
                self._attempted[snapshot] = new
            if self._identity is not None:
                transaction.set_properties(batch_property(self._identity, snapshot))


def _identity_of(task: FileScanTask) -> frozenset[str]:
    return frozenset(each.file_path for each in (task.file, *task.delete_files))


def _key_condition(name: str, column: pa.ChunkedArray) -> BooleanExpression:
    """Return a condition that all keys of the batch meet."""
    import pyarrow.compute as pc
    from pyiceberg.expressions import And, GreaterThanOrEqual, In, LessThanOrEqual, Reference

    term: Any = Reference(name)
    different = column.unique()
    if len(different) <= _LISTED_KEYS_MAX:
        return In(term=term, values=set(different.to_pylist()))
    bounds = pc.min_max(column).as_py()
    return And(
        GreaterThanOrEqual(term=term, value=bounds["min"]),
        LessThanOrEqual(term=term, value=bounds["max"]),
    )


def _physical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values as Iceberg's statistics have them: dates and times are numbers."""
    import pyarrow as pa

    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    is_time = pa.types.is_timestamp(column.type) or pa.types.is_time(column.type)
    return column.cast(pa.int64()) if is_time else column
