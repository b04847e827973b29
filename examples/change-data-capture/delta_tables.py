"""Delta tables that hold the current rows of source tables; each batch is one MERGE.

The commit of the MERGE holds the query's id and the batch's number (an application transaction of
Delta's protocol). Spark repeats a batch after a crash; a table that has the batch ignores it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, QueryBuilder, Schema, Transaction
from deltalake.table import TableMerger

from changes import Column, RowChange, TableChanges, Values
from column_types import arrow_type, python_value, sql_literal

# The position in PostgreSQL's log of the last change of a row.
LSN = "_lsn"
_DELETED = "__deleted"
_KNOWN = "__known_"
# Metadata of a column that was added later: the batch that added it.
_ADDED = "cdc.added_in_batch"


@dataclass(frozen=True, slots=True)
class Batch:
    """The identity of a micro-batch, which Spark may repeat."""

    query_id: str
    number: int


def apply_changes(path: Path, changes: TableChanges, batch: Batch) -> bool:
    """Bring a table up to date; return False if it has this batch already."""
    table = _open(path, changes)
    last = table.transaction_version(batch.query_id)
    if last is not None and last >= batch.number:
        return False
    added = _add_columns(table, changes, batch)
    rows = _Rows(table, changes, added)
    names = [column.field for column in changes.columns] + [LSN]
    merger = table.merge(
        rows.arrow_table(),
        # A batch that has TRUNCATE alone has no keys.
        " AND ".join(f"t.`{name}` = s.`{name}`" for name in changes.key) or "false",
        source_alias="s",
        target_alias="t",
        commit_properties=CommitProperties(
            app_transactions=[Transaction(batch.query_id, batch.number)]
        ),
    )
    updates = {f"`{name}`": _last_known(name, rows.unknown) for name in names}
    # A row that is newer than its change would be an event that Connect has repeated.
    merger = (
        merger.when_matched_delete(f"s.`{_DELETED}` AND s.`{LSN}` >= t.`{LSN}`")
        .when_matched_update(updates, f"NOT s.`{_DELETED}` AND s.`{LSN}` >= t.`{LSN}`")
        .when_not_matched_insert(
            {f"`{name}`": f"s.`{name}`" for name in names}, f"NOT s.`{_DELETED}`"
        )
    )
    _change_other_rows(merger, changes, added).execute()
    return True


def _open(path: Path, changes: TableChanges) -> DeltaTable:
    if DeltaTable.is_deltatable(str(path)):
        return DeltaTable(path)
    fields = [pa.field(column.field, arrow_type(column)) for column in changes.columns]
    return DeltaTable.create(path, pa.schema([*fields, pa.field(LSN, pa.int64())]))


def _add_columns(table: DeltaTable, changes: TableChanges, batch: Batch) -> set[str]:
    """Add the columns that the source table has and the Delta table does not; return their names.

    This is a commit of its own. If the process dies before the MERGE, the repeated batch finds the
    columns by their metadata.
    """
    present = {field.name: field for field in table.schema().fields}
    fields = pa.schema([pa.field(each.field, arrow_type(each)) for each in changes.columns])
    wanted = Schema.from_arrow(fields).fields
    for field in wanted:
        known = present.get(field.name)
        if known is not None and known.type != field.type:
            raise ValueError(
                f"column {field.name} is {known.type} in {table.table_uri} and {field.type} in the"
                " source table: a new type needs a new Delta table"
            )
    metadata = {_ADDED: str(batch.number)}
    missing = [
        Field(field.name, field.type, metadata=metadata)
        for field in wanted
        if field.name not in present
    ]
    if missing:
        table.alter.add_columns(missing)
    repeated = {name for name, field in present.items() if field.metadata == metadata}
    return repeated | {field.name for field in missing}


def _last_known(name: str, unknown: set[str]) -> str:
    if name not in unknown:
        return f"s.`{name}`"
    return f"CASE WHEN s.`{_KNOWN}{name}` THEN s.`{name}` ELSE t.`{name}` END"


def _change_other_rows(merger: TableMerger, changes: TableChanges, added: set[str]) -> TableMerger:
    """Change the rows of which the batch has no event."""
    if changes.is_truncated:
        return merger.when_not_matched_by_source_delete()
    # PostgreSQL gives a new column's default to all rows, and logs none of them.
    defaults = {
        f"`{column.field}`": sql_literal(column, column.default)
        for column in changes.columns
        if column.field in added and column.default is not None
    }
    return merger.when_not_matched_by_source_update(defaults) if defaults else merger


class _Rows:
    """The rows of a batch as the source of a MERGE."""

    def __init__(self, table: DeltaTable, changes: TableChanges, added: set[str]) -> None:
        self._table = table
        self._changes = changes
        self._added = added
        # Columns of which some row does not know the value.
        self.unknown: set[str] = set()

    def arrow_table(self) -> pa.Table:
        """Return the columns of the table, and whether each value is known where some are not."""
        rows = self._changes.rows
        origins = self._origins()
        columns: dict[str, pa.Array] = {}
        for column in self._changes.columns:
            found = [self._value(row, column, origins) for row in rows]
            values = [value for value, _ in found]
            columns[column.field] = pa.array(values, arrow_type(column))
            known = [is_known for _, is_known in found]
            if not all(known):
                self.unknown.add(column.field)
                columns[_KNOWN + column.field] = pa.array(known)
        columns[LSN] = pa.array([row.lsn for row in rows], pa.int64())
        columns[_DELETED] = pa.array([row.is_deleted for row in rows], pa.bool_())
        return pa.table(columns)

    def _value(
        self, row: RowChange, column: Column, origins: dict[tuple[Any, ...], Values]
    ) -> tuple[Any, bool]:
        """Return a value, and whether it is known."""
        name = column.field
        if name in row.values:
            return python_value(column, row.values[name]), True
        if row.is_deleted:
            return None, True
        if row.is_complete or name in self._added:
            return python_value(column, column.default), True
        if row.origin is not None:
            return origins[self._key_of(row.origin)].get(name), True
        return None, False

    def _origins(self) -> dict[tuple[Any, ...], Values]:
        """Return the rows in the Delta table whose primary keys change in this batch, by key."""
        moved = [
            row.origin
            for row in self._changes.rows
            if row.origin is not None and not row.is_complete and not row.is_deleted
        ]
        if not moved:
            return {}
        name = self._changes.key[0]
        (first,) = (column for column in self._changes.columns if column.field == name)
        keys = sorted({sql_literal(first, key[name]) for key in moved})
        # A filter of pyarrow does not know the types of the statistics of this table's files.
        query = f"SELECT * FROM t WHERE `{name}` IN ({', '.join(keys)})"
        found = pa.table(QueryBuilder().register("t", self._table).execute(query))
        return {tuple(row[part] for part in self._changes.key): row for row in found.to_pylist()}

    def _key_of(self, key: Values) -> tuple[Any, ...]:
        columns = {column.field: column for column in self._changes.columns}
        return tuple(python_value(columns[name], key[name]) for name in self._changes.key)
