"""Types of Kafka Connect's schemas as Arrow's types, and values of events as Python's values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from changes import Column

_STORED = {
    "boolean": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
_EPOCH = dt.date(1970, 1, 1)
# Stored types with a meaning of their own, and how their values are read.
_NAMED: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "io.debezium.time.Date": (pa.date32(), lambda days: _EPOCH + dt.timedelta(days)),
    "io.debezium.time.ZonedTimestamp": (pa.timestamp("us", "UTC"), dt.datetime.fromisoformat),
    "io.debezium.data.Uuid": (pa.string(), str),
    "io.debezium.data.Json": (pa.string(), str),
}
# Types whose literals are casts of text.
_SQL_TYPES = {pa.date32(): "DATE", pa.timestamp("us", "UTC"): "TIMESTAMP"}


def arrow_type(column: Column) -> pa.DataType:
    """Return the type of a column.

    Raises:
        ValueError: this example does not know it.
    """
    if column.name is not None:
        if column.name in _NAMED:
            return _NAMED[column.name][0]
    elif column.type in _STORED:
        return _STORED[column.type]
    raise ValueError(f"column {column.field}: type {column.name or column.type} is not supported")


def python_value(column: Column, value: Any) -> Any:
    """Return a value of an event, or a column's default, in its own type."""
    if value is None or column.name is None:
        return value
    return _NAMED[column.name][1](value)


def sql_literal(column: Column, value: Any) -> str:
    """Return a value of an event, or a column's default, as an expression of SQL."""
    value = python_value(column, value)
    if isinstance(value, bool | int | float):
        return str(value).lower()
    text = "'" + str(value).replace("'", "''") + "'"
    kind = _SQL_TYPES.get(arrow_type(column))
    return text if kind is None else f"CAST({text} AS {kind})"
