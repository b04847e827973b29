"""Columns and types of Delta tables, as the JSON of the protocol writes them.

A type is a name ("long", "decimal(10,2)") or an object of kind struct, array or map.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from barnabas.spark.row_types import optional_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from deltalake import Schema

DeltaType = str | dict[str, Any]
# Name, type, nullable and metadata of a column, or of a field of a struct.
Column = dict[str, Any]


def columns_of(schema: pa.Schema) -> list[Column]:
    """Return the columns of rows in Arrow, as columns of a new table: all of them are nullable."""
    from deltalake import Schema

    text = Schema.from_arrow(optional_schema(schema)).to_json()
    columns: list[Column] = json.loads(text)["fields"]
    return columns


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
    if isinstance(kind, str):
        return
    match kind["type"]:
        case "struct":
            yield from all_columns(kind["fields"], f"{path}.")
        case "array":
            yield from _inner_columns(kind["elementType"], f"{path}.element")
        case _:
            yield from _inner_columns(kind["keyType"], f"{path}.key")
            yield from _inner_columns(kind["valueType"], f"{path}.value")


def contains_type(kind: DeltaType, name: str) -> bool:
    """Return whether a type is the primitive type of this name, or contains it."""
    if isinstance(kind, str):
        return kind == name
    match kind["type"]:
        case "struct":
            return any(contains_type(each["type"], name) for each in kind["fields"])
        case "array":
            return contains_type(kind["elementType"], name)
        case _:
            return contains_type(kind["keyType"], name) or contains_type(kind["valueType"], name)


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
