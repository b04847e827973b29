"""Merges a batch into a Delta table by the MERGE of delta-rs, exactly once.

The commit has the same application transaction as that of appended files. Rows are checked by the
same plan. delta-rs reads only files whose partitions and statistics can have a key of the batch.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.spark.delta.columns import decimal_columns, delta_schema, file_properties, is_rounded
from barnabas.spark.delta.plan import plan_write
from barnabas.spark.delta.table import (
    add_columns,
    commit_properties,
    has_batch,
    load_table,
    open_files,
)
from barnabas.spark.errors import DeltaTableError, MergeError
from barnabas.spark.tables.commits import retry_conflicts
from barnabas.spark.tables.merge_options import DELETED
from barnabas.spark.tables.staging import STAGING_DIRECTORY, SortedKeys

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyarrow.fs import FileSystem

    from barnabas.spark.delta.columns import Column
    from barnabas.spark.delta.options import DeltaOptions
    from barnabas.spark.delta.plan import WritePlan
    from barnabas.spark.tables.commits import BatchIdentity
    from barnabas.spark.tables.merge_options import MergeOptions

# Number of key ranges in the condition of a MERGE.
_RANGES_MAX = 64


@dataclass(frozen=True, slots=True)
class DeltaMerge:
    """A Delta table into which batches are merged."""

    options: DeltaOptions
    merge: MergeOptions
    # Columns of the rows that are stored.
    columns: list[Column]

    def plan(self, table: DeltaTable | None) -> WritePlan:
        """Return how the rows are written to a table; None stands for one that does not exist.

        Raises:
            DeltaTableError: the rows do not fit, or the sink does not support the table.
        """
        plan = plan_write(self.options, self.columns, table, removes_rows=True)
        address = self.options.address
        decimals = decimal_columns(plan.columns, plan.partition_by)
        if decimals:
            raise DeltaTableError(
                f"{address} is partitioned by the decimal {', '.join(decimals)}, and the MERGE of"
                " delta-rs writes negative decimals that no reader accepts. Nothing was written."
                " Partition a table for mergeKeys by columns of other types"
            )
        for constraint in plan.constraints:
            if not constraint.is_exact:
                raise DeltaTableError(
                    f"{address} has {constraint.description}, and the MERGE of delta-rs cannot"
                    " check it. Nothing was written. Drop the constraint, and add it again with the"
                    " columns' names in the same case as in the table, and texts in single quotes"
                )
        return plan

    @property
    def staging_directory(self) -> str:
        """Path of the directory for staged rows."""
        return STAGING_DIRECTORY

    def open_storage(self) -> FileSystem:
        """Connect to the file system of the table."""
        return open_files(self.options)

    def create_if_missing(self) -> None:
        """Create the table without rows if it does not exist."""
        self._open()

    def merge_rows(self, rows: pa.Table, identity: BatchIdentity | None) -> None:
        """Merge one row for each key in one commit; create the table if it does not exist.

        Each attempt reads the table anew, because a commit of another writer in between can have
        changed the same rows, or replaced their files.

        Raises:
            DeltaTableError: the rows do not fit the table, or it is newer than the checkpoint.
            CommitFailedError: other writers changed the table during all attempts.
            DeltaError: a row violates a constraint of the table, or the object store failed.
        """
        from deltalake.exceptions import CommitFailedError

        retry_conflicts(lambda: self._attempt(rows, identity), (CommitFailedError,))

    def _attempt(self, rows: pa.Table, identity: BatchIdentity | None) -> None:
        # delta-rs would repeat the commit itself, and not see all conflicts of a MERGE.
        properties = commit_properties(identity, max_retries=0)
        table = self._open()
        if identity is not None and has_batch(table, identity, self.options.address):
            return
        plan = self.plan(table)
        fitted = self._fitted(plan, rows)
        # The MERGE of delta-rs could add them in its own commit (merge_schema). But then it stores
        # NULL for structs that get new fields, in all rows that it copies.
        add_columns(self.options, plan, table)
        self._execute(table, plan, fitted, properties)
        if identity is not None and not has_batch(table, identity, self.options.address):
            # A MERGE that changes no row is no commit.
            table.create_write_transaction(
                [],
                "append",
                table.schema(),
                partition_by=list(plan.partition_by),
                commit_properties=properties,
            )

    def _open(self) -> DeltaTable:
        from deltalake import DeltaTable

        options = self.options
        table = load_table(options)
        if table is None:
            plan = self.plan(None)
            # Another query may do the same at the same time. delta-rs would write a lost first
            # commit as the second one, with other columns perhaps.
            properties = commit_properties(None, max_retries=0)
            DeltaTable.create(
                options.address,
                delta_schema(plan.columns),
                mode="ignore",
                partition_by=list(plan.partition_by),
                storage_options=options.storage,
                commit_properties=properties,
            )
            table = DeltaTable(options.address, storage_options=options.storage)
        return table

    def _fitted(self, plan: WritePlan, rows: pa.Table) -> pa.Table:
        """Return the rows with all columns of the table, and check those that are not deletions.

        Raises:
            DeltaTableError: a row violates NOT NULL, a CHECK constraint or an invariant.
            MergeError: a key is the empty text, which a partition cannot have.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        batches = []
        for batch in rows.to_batches():
            fitted = plan.conformed(batch)
            plan.check(fitted.filter(pc.invert(batch[DELETED])))
            batches.append(fitted.append_column(DELETED, batch[DELETED]))
        schema = plan.schema.append(pa.field(DELETED, pa.bool_()))
        fitted = pa.Table.from_batches(batches, schema)
        for name in self.merge.keys:
            if fitted[name].null_count:
                raise MergeError(
                    f"{name} is the empty text in {fitted[name].null_count} rows, and mergeKeys"
                    " names it: Delta stores the empty text as NULL in a partition. Filter these"
                    " rows out, or give them another text"
                )
        return fitted

    def _execute(
        self, table: DeltaTable, plan: WritePlan, rows: pa.Table, properties: CommitProperties
    ) -> None:
        sequence = self.merge.stored_sequence
        newer = ""
        if sequence is not None:
            stored, given = _column("t", sequence), _column("s", sequence)
            newer = f" AND ({stored} IS NULL OR {given} >= {stored})"
        deleted = _column("s", DELETED)
        names = [each["name"] for each in plan.columns]
        has_rounded_keys = any(
            is_rounded(each) for each in plan.columns if each["name"] in self.merge.keys
        )
        values = {_quoted(name): _column("s", name) for name in names}
        (
            table.merge(
                rows,
                self._matches(table, rows),
                source_alias="s",
                target_alias="t",
                # Rows in memory have statistics, by which delta-rs leaves out files: wrong ones if
                # it rounds the statistics of the files.
                streamed_exec=has_rounded_keys,
                writer_properties=file_properties(plan.columns, "SNAPPY"),
                commit_properties=properties,
            )
            .when_matched_delete(f"{deleted}{newer}")
            .when_matched_update(values, f"NOT {deleted}{newer}")
            .when_not_matched_insert(values, f"NOT {deleted}")
            .execute()
        )

    def _matches(self, table: DeltaTable, rows: pa.Table) -> str:
        """Return the condition on which a row of the batch and one of the table have one key."""
        keys = self.merge.keys
        equal = [f"{_column('t', name)} = {_column('s', name)}" for name in keys]
        ranges = _key_ranges(table, rows, keys)
        return " AND ".join([*equal, *([] if ranges is None else [ranges])])


def old_staged_files(options: DeltaOptions, before_ms: int) -> list[str]:
    """Return the paths of staged rows from before a time: of jobs that were killed."""
    from pyarrow.fs import FileSelector

    found = open_files(options).get_file_info(FileSelector(STAGING_DIRECTORY, allow_not_found=True))
    return [each.path for each in found if (each.mtime_ns or 0) < before_ms * 1_000_000]


def _key_ranges(table: DeltaTable, rows: pa.Table, keys: tuple[str, ...]) -> str | None:
    """Return a condition on a key that names the ranges in which files can have a key of the batch.

    It changes no result: every row with a key of the batch is in one of the ranges. delta-rs itself
    only compares each file with the lowest and the highest key of the batch.
    """
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    for name in keys:
        kind = rows.schema.field(name).type
        low, high = f"min.{name}", f"max.{name}"
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)):
            continue
        if low not in actions.column_names or high not in actions.column_names:
            continue
        if actions[low].null_count or actions[high].null_count:
            continue
        try:
            return _ranges_of(name, SortedKeys(rows[name]), actions.select([low, high]))
        except OverflowError:
            # Python has no dates after the year 9999, which Spark has.
            return None
    return None


def _ranges_of(name: str, keys: SortedKeys, bounds: pa.Table) -> str:
    found = [keys.within(*each) for each in zip(*(c.to_pylist() for c in bounds), strict=True)]
    merged: list[tuple[Any, Any]] = []
    for low, high in sorted(each for each in found if each is not None):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    # Few long conditions: neighbors become one range.
    step = -(-len(merged) // _RANGES_MAX) or 1
    groups = [merged[start : start + step] for start in range(0, len(merged), step)]
    column = _column("t", name)
    parts = [f"{column} BETWEEN {_sql(g[0][0])} AND {_sql(g[-1][1])}" for g in groups]
    return f"({' OR '.join(parts)})" if parts else "false"


def _sql(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    text = "'" + str(value).replace("'", "''") + "'"
    return f"CAST({text} AS DATE)" if isinstance(value, dt.date) else text


def _column(alias: str, name: str) -> str:
    return f"{alias}.{_quoted(name)}"


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
