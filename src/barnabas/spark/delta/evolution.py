"""Fits the columns of rows to those of a Delta table: compares them, adds or replaces columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from barnabas.spark.delta.columns import (
    Column,
    DeltaType,
    all_columns,
    arrow_schema,
    contains_type,
    type_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    match table["type"]:
        case "struct":
            return differences(
                rows["fields"], table["fields"], may_miss=may_miss, prefix=f"{path}."
            )
        case "array":
            pairs = [("elementType", "element")]
        case _:
            if _adds_fields(rows, table):
                # Old files would need a cast inside the map, and delta-rs has none: no merge and no
                # compaction of the table would work.
                text = (
                    f"{path} is {type_text(rows)} in the rows and {type_text(table)} in the table"
                )
                advice = "leave them out, or overwrite the table with overwriteSchema=true"
                return [f"{text} (structs inside maps cannot get new fields: {advice})"]
            pairs = [("keyType", "key"), ("valueType", "value")]
    return [
        text
        for key, name in pairs
        for text in _type_differences(rows[key], table[key], f"{path}.{name}", may_miss=may_miss)
    ]


def _adds_fields(rows: DeltaType, table: DeltaType) -> bool:
    """Return whether a struct at any depth has fields that only the rows have."""
    if isinstance(rows, str) or isinstance(table, str) or rows["type"] != table["type"]:
        return False
    match table["type"]:
        case "struct":
            known = {each["name"]: each["type"] for each in table["fields"]}
            return any(
                each["name"] not in known or _adds_fields(each["type"], known[each["name"]])
                for each in rows["fields"]
            )
        case "array":
            return _adds_fields(rows["elementType"], table["elementType"])
        case _:
            return any(_adds_fields(rows[key], table[key]) for key in ("keyType", "valueType"))


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
