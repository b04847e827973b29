"""Decides on the driver how rows are written to a Delta table, or refuses them.

The driver makes the plan before the first task, and again at the commit: the table may have changed
meanwhile. Tasks use the plan to fit and check their rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.delta.columns import arrow_schema, contains_type, without_metadata
from barnabas.spark.delta.constraints import Constraint, table_constraints
from barnabas.spark.delta.errors import DeltaTableError
from barnabas.spark.delta.evolution import differences, merged, replaced, unstorable
from barnabas.spark.delta.features import TableState, check_features
from barnabas.spark.delta.replaced_files import unreplaceable_path
from barnabas.spark.delta.row_checks import check_constraints, check_not_null
from barnabas.spark.option_values import other_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from deltalake import DeltaTable

    from barnabas.spark.delta.columns import Column
    from barnabas.spark.delta.table_options import TableOptions


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What a task must know of the table to write its files; travels to the executors."""

    address: str
    # Columns of the rows.
    rows: list[Column]
    # Whether the rows replace those of the table.
    removes_rows: bool
    # Columns of the table after the commit.
    columns: list[Column]
    # Types in which files store these columns.
    schema: pa.Schema
    partition_by: tuple[str, ...]
    constraints: tuple[Constraint, ...]

    def fitted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the columns and types of the table.

        Raises:
            DeltaTableError: a row violates NOT NULL, a CHECK constraint or an invariant.
        """
        for batch in batches:
            fitted = self.conformed(batch)
            self.check(fitted)
            yield fitted

    def check(self, fitted: pa.RecordBatch) -> None:
        """Check rows that have the columns and types of the table.

        Raises:
            DeltaTableError: a row violates NOT NULL, a CHECK constraint or an invariant.
        """
        check_not_null(fitted, self.columns, self.address)
        check_constraints(fitted, self.constraints, self.address)

    def conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns and types of the table, unchecked."""
        import pyarrow as pa
        import pyarrow.compute as pc

        present = set(batch.schema.names)

        def column(field: pa.Field) -> pa.Array:
            if field.name not in present:
                return pa.nulls(batch.num_rows, field.type)
            values = batch.column(field.name).cast(field.type)
            if field.name in self.partition_by and pa.types.is_string(field.type):
                # Delta's log has no empty partition value: it is NULL.
                return pc.if_else(pc.equal(values, ""), pa.scalar(None, field.type), values)
            return values

        return pa.RecordBatch.from_arrays(
            [column(each) for each in self.schema], schema=self.schema
        )


def plan_write(
    options: TableOptions, rows: list[Column], table: DeltaTable | None, *, removes_rows: bool
) -> WritePlan:
    """Return how to write rows to a table; None stands for a table that does not exist.

    Args:
        options: address and layout of the table, and which changes are allowed.
        rows: the columns of the rows.
        table: the current state of the table.
        removes_rows: whether the rows replace those of the table.

    Raises:
        DeltaTableError: the rows do not fit the table, or the table uses a feature that the sink
            does not support.
    """
    if table is None:
        _refuse(options.address, unstorable(rows))
        return WritePlan(
            options.address,
            rows,
            removes_rows,
            rows,
            arrow_schema(rows),
            options.partition_by or (),
            (),
        )
    state = table_state(table, options.address)
    check_features(state, removes_rows=removes_rows)
    if removes_rows:
        _check_paths(table, options.address)
    partition_by = _partition_columns(table, options)
    columns = _columns_after(options, rows, state, removes_rows=removes_rows)
    lost = [each for each in partition_by if each not in {column["name"] for column in columns}]
    _refuse(
        options.address,
        [f"{each} is missing in the rows, and the table is partitioned by it" for each in lost],
    )
    plan = WritePlan(
        options.address,
        rows,
        removes_rows,
        columns,
        arrow_schema(columns),
        partition_by,
        table_constraints(state, columns),
    )
    _check_evaluable(plan)
    return plan


def renewed(options: TableOptions, plan: WritePlan, table: DeltaTable) -> WritePlan:
    """Return the plan for the current state of the table, at the commit.

    Raises:
        DeltaTableError: the tasks did not write and check their rows by this plan.
    """
    now = plan_write(options, plan.rows, table, removes_rows=plan.removes_rows)
    if (
        without_metadata(now.columns) != without_metadata(plan.columns)
        or now.partition_by != plan.partition_by
        or now.constraints != plan.constraints
    ):
        raise DeltaTableError(
            f"columns or constraints of {options.address} were changed while the batch was"
            " written. Nothing was added; start the query again"
        )
    return now


def table_state(table: DeltaTable, address: str) -> TableState:
    """Return what decides how a table may be written."""
    protocol = table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return TableState(
        address,
        protocol.min_reader_version,
        protocol.min_writer_version,
        frozenset(features),
        table.metadata().configuration,
        json.loads(table.schema().to_json())["fields"],
    )


def _check_paths(table: DeltaTable, address: str) -> None:
    path = unreplaceable_path(table)
    if path is not None:
        raise DeltaTableError(
            f"{address} has the file {path!r}, which delta-rs cannot replace: the log would get"
            " another path, and the old rows would stay. Nothing was written. Append to the"
            " table, or replace and merge its rows with Spark and Delta's jar"
        )


def _partition_columns(table: DeltaTable, options: TableOptions) -> tuple[str, ...]:
    columns = tuple(table.metadata().partition_columns)
    if options.partition_by is not None and options.partition_by != columns:
        raise DeltaTableError(other_partitions(options.address, columns, options.partition_by))
    return columns


def _columns_after(
    options: TableOptions, rows: list[Column], state: TableState, *, removes_rows: bool
) -> list[Column]:
    """Return the columns of the table after the commit.

    Raises:
        DeltaTableError: the rows do not fit, and no option allows to change the table.
    """
    if options.overwrite_schema and removes_rows:
        columns, wrong = replaced(rows, state.columns), []
    elif options.merge_schema:
        columns = merged(rows, state.columns)
        wrong = differences(rows, columns, may_miss=True)
    else:
        columns = state.columns
        wrong = differences(rows, columns, may_miss=False)
    if columns != state.columns:
        wrong += unstorable(columns)
        wrong += _missing_feature(columns, state)
    _refuse(state.address, wrong)
    return columns


def _missing_feature(columns: list[Column], state: TableState) -> list[str]:
    """Refuse the first column that needs a feature.

    `delta-rs` could add the feature. But on a table of an older protocol it would drop the
    features that the old writer version implies, such as checkConstraints.
    """
    if "timestampNtz" in state.features:
        return []
    return [
        f"{each['name']} is timestamp_ntz, and the table does not have the feature timestampNtz"
        " (cast it to timestamp, or set delta.feature.timestampNtz to supported)"
        for each in columns
        if contains_type(each["type"], "timestamp_ntz")
    ]


def _refuse(address: str, wrong: list[str]) -> None:
    if wrong:
        raise DeltaTableError(
            f"the rows do not fit {address}: {'; '.join(wrong)}. Nothing was written"
        )


def _check_evaluable(plan: WritePlan) -> None:
    """Evaluate the constraints on no rows, so that no task begins if `delta-rs` cannot do it."""
    import pyarrow as pa

    empty = pa.RecordBatch.from_pylist([], schema=plan.schema)
    try:
        check_constraints(empty, plan.constraints, plan.address)
    except Exception as error:
        described = "; ".join(each.description for each in plan.constraints)
        raise DeltaTableError(
            f"{plan.address} has {described}, and delta-rs cannot evaluate this: {error}."
            " Nothing was written"
        ) from error
