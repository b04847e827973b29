"""Columns of Delta tables, as the JSON of the protocol writes them, and how rows fit to them.

A type is a name ("long", "decimal(10,2)") or an object of kind struct, array or map.

Decimals need care: delta-rs converts their statistics to binary floating-point numbers. Those of
more than 15 digits are rounded, so readers would leave out files that have the rows they look for.
It also writes negative decimals as values of partitions that no reader accepts, such as `-1.-50`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal

from barnabas.spark.tables.rows import optional_schema, stored_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from deltalake import Schema, WriterProperties
    from pyspark.sql.types import StructType

DeltaType = str | dict[str, Any]
# Name, type, nullable and metadata of a column, or of a field of a struct.
Column = dict[str, Any]
# Decimal digits that hold every value of an integer type.
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
# Types that hold every value of a type, besides decimals.
_WIDER = {
    "byte": ("short", "integer", "long", "float", "double"),
    "short": ("integer", "long", "float", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
}
_MERGE = "set mergeSchema to true to {}"
# Decimal digits that a binary floating-point number keeps.
_EXACT_DIGITS = 15


def columns_of(schema: pa.Schema) -> list[Column]:
    """Return the columns of rows in Arrow, as columns of a new table: all of them are nullable."""
    from deltalake import Schema

    text = Schema.from_arrow(optional_schema(schema)).to_json()
    columns: list[Column] = json.loads(text)["fields"]
    return columns


def row_columns(schema: StructType) -> list[Column]:
    """Convert Spark's schema to nullable columns of Delta; timestamps are UTC, in microseconds.

    Raises:
        OptionError: a Delta table cannot store one of the types.
    """
    # A column of nulls fits each column that the table has.
    return columns_of(stored_schema(schema, "barnabas_delta", accepts_null=True))


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the types in which files store the columns; all of them are nullable."""
    import pyarrow as pa

    return optional_schema(pa.schema(delta_schema(columns).to_arrow()))


def delta_schema(columns: Sequence[Column]) -> Schema:
    """Return the columns as `deltalake` takes them."""
    from deltalake import Schema

    return Schema.from_json(json.dumps({"type": "struct", "fields": columns}))


def without_metadata(columns: Sequence[Column]) -> list[Column]:
    """Return names, types and nullability of the columns, and of their fields."""

    def plain(found: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in found.items() if key != "metadata"}

    stripped: list[Column] = json.loads(json.dumps(columns), object_hook=plain)
    return stripped


def all_columns(columns: Sequence[Column], prefix: str = "") -> Iterator[tuple[str, Column]]:
    """Yield each column and each field of structs at all depths, with its path."""
    for column in columns:
        path = prefix + column["name"]
        yield path, column
        yield from _inner_columns(column["type"], path)


def _inner_columns(kind: DeltaType, path: str) -> Iterator[tuple[str, Column]]:
    if not isinstance(kind, str) and kind["type"] == "struct":
        yield from all_columns(kind["fields"], f"{path}.")
        return
    for name, part in _parts(kind):
        yield from _inner_columns(part, f"{path}.{name}")


def _parts(kind: DeltaType) -> list[tuple[str, DeltaType]]:
    """Return the types that a type consists of, by the last part of their paths."""
    if isinstance(kind, str):
        return []
    match kind["type"]:
        case "struct":
            return [(each["name"], each["type"]) for each in kind["fields"]]
        case "array":
            return [("element", kind["elementType"])]
        case _:
            return [("key", kind["keyType"]), ("value", kind["valueType"])]


def contains_type(kind: DeltaType, name: str) -> bool:
    """Return whether a type is the primitive type of this name, or contains it."""
    return kind == name or any(contains_type(part, name) for _, part in _parts(kind))


def type_text(kind: DeltaType) -> str:
    """Return a type as SQL writes it, such as array<struct<a:long>>."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "struct":
            inner = ",".join(f"{each['name']}:{type_text(each['type'])}" for each in kind["fields"])
            return f"struct<{inner}>"
        case "array":
            return f"array<{type_text(kind['elementType'])}>"
        case _:
            return f"map<{type_text(kind['keyType'])},{type_text(kind['valueType'])}>"


def merged(rows: Sequence[Column], table: Sequence[Column]) -> list[Column]:
    """Return the columns of the table, and behind them those that only the rows have.

    This also holds for fields of structs, but not inside maps. Types of existing columns stay.
    """
    by_name = {each["name"]: each for each in rows}
    kept = [
        {**each, "type": _merged_type(by_name[each["name"]]["type"], each["type"])}
        if each["name"] in by_name
        else each
        for each in table
    ]
    names = {each["name"] for each in table}
    return [*kept, *(each for each in rows if each["name"] not in names)]


def _merged_type(rows: DeltaType, table: DeltaType) -> DeltaType:
    if isinstance(rows, str) or isinstance(table, str) or rows["type"] != table["type"]:
        return table
    match table["type"]:
        case "struct":
            return {**table, "fields": merged(rows["fields"], table["fields"])}
        case "array":
            return {**table, "elementType": _merged_type(rows["elementType"], table["elementType"])}
        case _:
            return table


def replaced(rows: Sequence[Column], table: Sequence[Column]) -> list[Column]:
    """Return the columns of the rows; a column of equal type keeps its definition of the table."""
    old = {each["name"]: each for each in table}
    return [
        old[each["name"]]
        if each["name"] in old and arrow_schema([old[each["name"]]]) == arrow_schema([each])
        else each
        for each in rows
    ]


def differences(
    rows: Sequence[Column], table: Sequence[Column], *, may_miss: bool, prefix: str = ""
) -> list[str]:
    """Return what does not fit, as sentences with the option that would allow it.

    Rows may be nullable where the table is not: each batch is checked for nulls.

    Args:
        rows: the columns of the rows.
        table: the columns of the table.
        may_miss: whether rows may lack columns that may be null.
        prefix: path of the struct whose fields are compared.
    """
    row_types = {each["name"]: each["type"] for each in rows}
    wrong = []
    for column in table:
        path, kind = prefix + column["name"], column["type"]
        if column["name"] in row_types:
            wrong += _type_differences(row_types.pop(column["name"]), kind, path, may_miss=may_miss)
        elif not column["nullable"]:
            wrong.append(
                f"{path} is missing in the rows and {type_text(kind)} NOT NULL in the table"
            )
        elif not may_miss:
            wrong.append(
                f"{path} is missing in the rows and {type_text(kind)} in the table"
                f" ({_MERGE.format('store NULL')})"
            )
    wrong += [
        f"{prefix}{name} is {type_text(kind)} in the rows and missing in the table"
        f" ({_MERGE.format('add it')})"
        for name, kind in row_types.items()
    ]
    return wrong


def _type_differences(rows: DeltaType, table: DeltaType, path: str, *, may_miss: bool) -> list[str]:
    if isinstance(rows, str) or isinstance(table, str) or rows["type"] != table["type"]:
        if _holds(rows, table):
            return []
        wanted = type_text(table)
        text = f"{path} is {type_text(rows)} in the rows and {wanted} in the table (cast it to"
        return [f"{text} {wanted}, or overwrite the table with overwriteSchema=true)"]
    if table["type"] == "struct":
        return differences(rows["fields"], table["fields"], may_miss=may_miss, prefix=f"{path}.")
    if table["type"] == "map" and _adds_fields(rows, table):
        # Old files would need a cast inside the map, and delta-rs has none: no merge and no
        # compaction of the table would work.
        text = f"{path} is {type_text(rows)} in the rows and {type_text(table)} in the table"
        advice = "leave them out, or overwrite the table with overwriteSchema=true"
        return [f"{text} (structs inside maps cannot get new fields: {advice})"]
    return [
        text
        for (name, row_part), (_, part) in zip(_parts(rows), _parts(table), strict=True)
        for text in _type_differences(row_part, part, f"{path}.{name}", may_miss=may_miss)
    ]


def _adds_fields(rows: DeltaType, table: DeltaType) -> bool:
    """Return whether a struct at any depth has fields that only the rows have."""
    if isinstance(rows, str) or isinstance(table, str) or rows["type"] != table["type"]:
        return False
    if table["type"] == "struct":
        known = dict(_parts(table))
        return any(
            name not in known or _adds_fields(part, known[name]) for name, part in _parts(rows)
        )
    pairs = zip(_parts(rows), _parts(table), strict=True)
    return any(_adds_fields(row_part, part) for (_, row_part), (_, part) in pairs)


def _holds(rows: DeltaType, table: DeltaType) -> bool:
    """Return whether the table's type holds every value of the rows' type."""
    if rows == "void" or rows == table:
        return True
    if not isinstance(rows, str) or not isinstance(table, str):
        return False
    if table in _WIDER.get(rows, ()):
        return True
    target = _decimal(table)
    if target is None:
        return False
    source = (_DIGITS[rows], 0) if rows in _DIGITS else _decimal(rows)
    return (
        source is not None
        and target[1] >= source[1]
        and (target[0] - target[1] >= source[0] - source[1])
    )


def _decimal(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type."""
    found = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind)
    return (int(found[1]), int(found[2])) if found else None


def unstorable(columns: Sequence[Column]) -> list[str]:
    """Return why columns cannot be part of a table, as sentences."""
    wrong = [
        f"{each['name']} is {type_text(each['type'])}, and void is the type of SELECT NULL: cast it"
        " to the type it will have"
        for each in columns
        if contains_type(each["type"], "void")
    ]
    names: dict[str, str] = {}
    for path, _ in all_columns(columns):
        same = names.setdefault(path.lower(), path)
        if same != path:
            wrong.append(f"{same} and {path} differ only in case: rename one of them")
    return wrong


def is_rounded(column: Column) -> bool:
    """Return whether delta-rs rounds the statistics of a column."""
    digits = _digits(column)
    return digits is not None and digits > _EXACT_DIGITS


def decimal_columns(columns: Sequence[Column], names: Iterable[str]) -> list[str]:
    """Return those of the names whose columns are decimals."""
    decimals = {each["name"] for each in columns if _digits(each) is not None}
    return [each for each in names if each in decimals]


def file_properties(
    columns: Sequence[Column], compression: Literal["SNAPPY", "ZSTD"]
) -> WriterProperties | None:
    """Return how delta-rs writes files without rounded statistics; None if it rounds none.

    Args:
        columns: the columns of the table.
        compression: of the files; `deltalake` has no default of its own for given properties.
    """
    from deltalake import ColumnProperties, WriterProperties

    if not any(is_rounded(each) for _, each in all_columns(columns)):
        return None
    # delta-rs cannot name a field of a struct, so only simple columns get statistics.
    kept = [each for each in columns if isinstance(each["type"], str) and not is_rounded(each)]
    return WriterProperties(
        compression=compression,
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={
            each["name"]: ColumnProperties(statistics_enabled="CHUNK") for each in kept
        },
    )


def _digits(column: Column) -> int | None:
    """Return the number of digits of a decimal column."""
    kind = column["type"]
    found = re.match(r"decimal\((\d+)", kind) if isinstance(kind, str) else None
    return None if found is None else int(found[1])
