"""Checks rows against what protects a table: NOT NULL, CHECK constraints and invariants."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.spark.delta.errors import DeltaTableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from barnabas.spark.delta.columns import Column, DeltaType
    from barnabas.spark.delta.constraints import Constraint

# Names in expressions keep their case, and "a" is a text as in Spark.
_SQL = {
    "datafusion.sql_parser.enable_ident_normalization": "false",
    "datafusion.sql_parser.dialect": "databricks",
}


def check_not_null(batch: pa.RecordBatch, columns: Sequence[Column], address: str) -> None:
    """Refuse rows with nulls where the table allows none, at all depths.

    Raises:
        DeltaTableError: names table, column and number of nulls.
    """
    for column in columns:
        for path, count in _nulls(batch.column(column["name"]), column, column["name"]):
            raise DeltaTableError(
                f"{address}: {path} is NOT NULL, and {count} of {batch.num_rows} rows of a batch"
                f" have no value for it. Nothing was added. Filter these rows, or give them a value"
            )


def _nulls(values: pa.Array, column: Column, path: str) -> Iterator[tuple[str, int]]:
    """Yield the paths of forbidden nulls, and how many there are."""
    if values.null_count and not column["nullable"]:
        yield path, values.null_count
    yield from _inner_nulls(values, column["type"], path)


def _inner_nulls(values: pa.Array, kind: DeltaType, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(kind, str):
        return
    # A null has no fields and elements.
    values = values.drop_null()
    match kind["type"]:
        case "struct":
            for field in kind["fields"]:
                inner = values.field(values.type.get_field_index(field["name"]))
                yield from _nulls(inner, field, f"{path}.{field['name']}")
        case "array":
            element = _unnamed(kind["elementType"], kind["containsNull"])
            yield from _nulls(values.flatten(), element, f"{path}.element")
        case _:
            # `values` may be a slice of a larger array, and `keys` and `items` are not.
            start, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
            keys, items = (
                values.keys.slice(start, end - start),
                values.items.slice(start, end - start),
            )
            yield from _inner_nulls(keys, kind["keyType"], f"{path}.key")
            value = _unnamed(kind["valueType"], kind["valueContainsNull"])
            yield from _nulls(items, value, f"{path}.value")


def _unnamed(kind: DeltaType, nullable: bool) -> Column:
    return {"type": kind, "nullable": nullable}


def check_constraints(
    batch: pa.RecordBatch, constraints: Sequence[Constraint], address: str
) -> None:
    """Refuse rows for which a constraint is not true; `delta-rs` evaluates the constraints.

    Raises:
        DeltaTableError: names table, constraint, number of rows and the values of one row.
    """
    for constraint in constraints:
        count, row = violations(batch, constraint)
        if count:
            raise DeltaTableError(
                f"{address}: {count} of {batch.num_rows} rows of a batch violate"
                f" {constraint.description}, for instance {row}. Nothing was added. Filter or"
                " mend these rows"
            )


def violations(batch: pa.RecordBatch, constraint: Constraint) -> tuple[int, dict[str, Any]]:
    """Return the number of rows for which a constraint is not true, and values of one such row."""
    import pyarrow as pa
    from deltalake import QueryBuilder
    from pyarrow import ipc

    # A constraint without columns is evaluated once for each row too.
    columns = [*(_values(batch, each) for each in constraint.paths), pa.nulls(batch.num_rows)]
    named = pa.RecordBatch.from_arrays(columns, [f"c{index}" for index in range(len(columns))])
    # `delta-rs` takes rows from files only.
    with tempfile.TemporaryDirectory(prefix="barnabas-delta-") as directory:
        path = Path(directory, "rows.arrow")
        with ipc.new_file(path, named.schema) as file:
            file.write_batch(named)
        query = QueryBuilder(_SQL)

        def found(sql: str) -> list[dict[str, Any]]:
            result: list[dict[str, Any]] = pa.table(query.execute(sql).read_all()).to_pylist()
            return result

        location = str(path).replace("'", "''")
        found(f"CREATE EXTERNAL TABLE batch STORED AS ARROW LOCATION '{location}'")
        wrong = f"FROM batch WHERE ({constraint.expression}) IS NOT TRUE"
        [counted] = found(f"SELECT count(*) AS n {wrong}")
        if not counted["n"]:
            return 0, {}
        [row] = found(f"SELECT * {wrong} LIMIT 1")
        names = [".".join(each) for each in constraint.paths]
        return counted["n"], dict(zip(names, row.values(), strict=False))


def _values(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    """Return a column or a field of structs; a field of a null is null."""
    import pyarrow.compute as pc

    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column
