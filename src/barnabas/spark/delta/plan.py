"""Decides on the driver how rows are written to a Delta table, or refuses them.

The driver makes the plan before the first task, and again at the commit: the table may have changed
meanwhile. Tasks use the plan to fit and check their rows.

A table with a feature that the sink does not support is refused. A feature is part of a table if
its protocol names the feature (writer version 7), or if an older writer version implies the feature
and a property or a column uses it. The protocol allows only writers that support all features of
the table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.delta.columns import (
    Column,
    all_columns,
    arrow_schema,
    contains_type,
    differences,
    merged,
    replaced,
    unstorable,
    without_metadata,
)
from barnabas.spark.delta.constraints import (
    Constraint,
    check_constraints,
    check_not_null,
    table_constraints,
)
from barnabas.spark.errors import DeltaTableError
from barnabas.spark.option_table import other_partitions

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from deltalake import DeltaTable

    from barnabas.spark.delta.options import DeltaOptions

# Features whose presence in the protocol is harmless: `delta-rs` commits to such tables, and the
# sink obeys what the feature asks for where a property or a column uses it.
SUPPORTED = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
    }
)
_CURRENT_READER, _CURRENT_WRITER = 3, 7
# Writer version that implies identity columns; `delta-rs` does not write to such tables.
_IDENTITY_WRITER = 6
# Metadata of a column whose values the writer must compute, and the feature.
_COMPUTED = (
    ("delta.generationExpression", "generatedColumns"),
    ("delta.identity.", "identityColumns"),
    ("CURRENT_DEFAULT", "allowColumnDefaults"),
)
# Properties that ask for what the sink cannot do, and the feature.
_PROPERTIES = (
    ("delta.enableRowTracking", "rowTracking"),
    ("delta.enableInCommitTimestamps", "inCommitTimestamp"),
    ("delta.enableIcebergCompatV1", "icebergCompatV1"),
    ("delta.enableIcebergCompatV2", "icebergCompatV2"),
    ("delta.enableIcebergCompatV3", "icebergCompatV3"),
)
# All but the printable characters of ASCII without the tilde.
_CHANGED = "[^ -}]"


@dataclass(frozen=True, slots=True)
class TableState:
    """The parts of a table's state that decide how it may be written."""

    address: str
    reader_version: int
    writer_version: int
    # Features that the protocol names.
    features: frozenset[str]
    # Properties of the table.
    properties: Mapping[str, str]
    columns: list[Column]


def check_features(state: TableState, *, removes_rows: bool) -> None:
    """Refuse a table with a feature that the sink does not support.

    Args:
        state: the table.
        removes_rows: whether the sink will replace, change or delete rows of the table.

    Raises:
        DeltaTableError: the table uses such a feature; names the feature and its columns.
    """
    used = [*_protocol_features(state), *_column_features(state), *_property_features(state)]
    if used:
        raise DeltaTableError(
            f"{state.address} uses features of Delta that barnabas_delta does not support:"
            f" {'; '.join(dict.fromkeys(used))}. Nothing was written. Drop these features from the"
            " table, or write to it with Spark and Delta's jar"
        )
    if removes_rows and state.properties.get("delta.appendOnly", "").lower() == "true":
        raise DeltaTableError(
            f"{state.address} is append-only (delta.appendOnly=true, feature appendOnly), so its"
            " rows cannot be replaced. Append to it, or set delta.appendOnly to false"
        )


def _protocol_features(state: TableState) -> list[str]:
    used = sorted(state.features - SUPPORTED)
    if state.writer_version == _IDENTITY_WRITER:
        used.append(f"identityColumns (implied by writer version {_IDENTITY_WRITER})")
    if state.writer_version > _CURRENT_WRITER or state.reader_version > _CURRENT_READER:
        used.append(
            f"reader version {state.reader_version} with writer version {state.writer_version}"
        )
    return used


def _column_features(state: TableState) -> list[str]:
    used = []
    for prefix, feature in _COMPUTED:
        paths = [
            path
            for path, column in all_columns(state.columns)
            if any(key.startswith(prefix) for key in column["metadata"])
        ]
        if paths:
            used.append(f"{feature} (of {', '.join(paths)})")
    variants = [each["name"] for each in state.columns if contains_type(each["type"], "variant")]
    if variants:
        used.append(f"variantType (of {', '.join(variants)})")
    return used


def _property_features(state: TableState) -> list[str]:
    used = []
    mode = state.properties.get("delta.columnMapping.mode", "none")
    if mode.lower() != "none":
        used.append(f"columnMapping (delta.columnMapping.mode={mode})")
    for name, feature in _PROPERTIES:
        if state.properties.get(name, "").lower() == "true":
            used.append(f"{feature} ({name}=true)")
    return used


def unreplaceable_path(table: DeltaTable) -> str | None:
    """Return the path of a file that delta-rs cannot replace; None if it can replace all files.

    Spark's Delta writes characters such as `ü` as they are to the path of a file, for instance in
    the directory of a partition. If delta-rs removes such a file, it writes the percent-encoded
    path to the log. That path names no file of the table, so the rows stay beside those that
    replace them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    paths = pa.table(table.get_add_actions())["path"].cast(pa.string())
    found = paths.filter(pc.match_substring_regex(paths, _CHANGED))
    return found[0].as_py() if len(found) else None


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The layout and checks by which tasks write files of a table; it travels to the executors."""

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

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns and types of the table.

        Raises:
            DeltaTableError: a row violates NOT NULL, a CHECK constraint or an invariant.
        """
        fitted = self.conformed(batch)
        self.check(fitted)
        return fitted

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
    options: DeltaOptions, rows: list[Column], table: DeltaTable | None, *, removes_rows: bool
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
            address=options.address,
            rows=rows,
            removes_rows=removes_rows,
            columns=rows,
            schema=arrow_schema(rows),
            partition_by=options.partition_by or (),
            constraints=(),
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
        address=options.address,
        rows=rows,
        removes_rows=removes_rows,
        columns=columns,
        schema=arrow_schema(columns),
        partition_by=partition_by,
        constraints=table_constraints(state.address, state.properties, columns),
    )
    _check_evaluable(plan)
    return plan


def renewed(options: DeltaOptions, plan: WritePlan, table: DeltaTable) -> WritePlan:
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


def _partition_columns(table: DeltaTable, options: DeltaOptions) -> tuple[str, ...]:
    columns = tuple(table.metadata().partition_columns)
    if options.partition_by is not None and options.partition_by != columns:
        raise DeltaTableError(other_partitions(options.address, columns, options.partition_by))
    return columns


def _columns_after(
    options: DeltaOptions, rows: list[Column], state: TableState, *, removes_rows: bool
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
