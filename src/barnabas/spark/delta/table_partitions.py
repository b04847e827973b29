"""Partitions of Delta tables: values as text, directories, and types that can be values.

The text is that of Delta's protocol, "Partition Value Serialization".
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from barnabas.spark.delta.errors import DeltaTableError
from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import StructType

# The name that Hive gave to the directory of rows without a value.
_NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
# File systems refuse longer names.
_DIRECTORY_BYTES_MAX = 255
# Spark's names of types that a partition can have. The protocol's text for binary values is not
# what its readers expect.
_TYPES = frozenset(
    {
        "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string",
        "char", "varchar", "date", "timestamp", "timestamp_ntz",
    }
)  # fmt: skip


def check_partition_types(schema: StructType, partition_by: Sequence[str]) -> None:
    """Refuse columns that no directory can be named after.

    Raises:
        OptionError: a column of the partitions is binary or nested, or its name is unfit.
    """
    for name in partition_by:
        if "=" in name or "/" in name:
            raise OptionError(
                f"partitionColumns names {name!r}: a directory of the table could not be told"
                " apart from others with = or / in its name"
            )
        kind = schema[name].dataType
        if kind.typeName() not in _TYPES:
            raise OptionError(
                f"partitionColumns names {name}, which is {kind.simpleString()}: a Delta table"
                " can be partitioned by texts, numbers, dates, times and booleans only"
            )


def partition_text(value: Any) -> str | None:
    """Return the value of a partition column as the table's log stores it; None for null."""
    match value:
        case None | "":
            # The protocol has no empty text.
            return None
        case bool():
            return "true" if value else "false"
        case dt.datetime() if value.tzinfo is None:
            return value.isoformat(" ", "microseconds")
        case dt.datetime():
            # Without a zone, Spark would take it for its own.
            return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
        case dt.date():
            return value.isoformat()
        case decimal.Decimal():
            return f"{value:f}"
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case _:
            return str(value)


def partition_directory(values: Mapping[str, str | None]) -> str:
    """Return the directory of a partition, with a slash behind each level; empty without columns.

    Raises:
        DeltaTableError: a value is too long.
    """
    return "".join(f"{_level(*each)}/" for each in values.items())


def _level(column: str, text: str | None) -> str:
    value = _NULL_DIRECTORY if text is None else quote(text, safe="")
    name = f"{column}={value}"
    if len(name.encode()) > _DIRECTORY_BYTES_MAX:
        raise DeltaTableError(
            f"a value of {column} has {len(text or '')} characters, which is too long for the"
            " name of a partition's directory: do not partition the table by this column"
        )
    return name
