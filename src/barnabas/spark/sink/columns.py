"""The columns of a record among the columns of the rows to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from barnabas.spark.options import SinkOptions

_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Indexes of the columns of a record; None for a column that the rows do not have."""

    value: int
    key: int | None
    topic: int | None
    partition: int | None
    headers: int | None


def sink_columns(schema: StructType, options: SinkOptions) -> SinkColumns:
    """Find the columns of a record in the rows to write.

    Raises:
        OptionError: `value` or the topic is missing, or a column has the wrong type.
    """
    found: dict[str, int] = {}
    for index, column in enumerate(schema.fields):
        expected = _TYPES.get(column.name)
        if expected is None:
            continue
        actual = column.dataType.simpleString()
        if actual not in expected:
            raise OptionError(
                f"column {column.name} is {actual}, expected {' or '.join(expected)}; cast it"
            )
        found[column.name] = index
    if "value" not in found:
        raise OptionError(
            f"no column 'value' among {', '.join(schema.fieldNames())}: name the column that "
            "holds the values of the records 'value' (string or binary)"
        )
    if options.topic is None and "topic" not in found:
        raise OptionError("no topic to write to: set the option 'topic' or add a column 'topic'")
    return SinkColumns(
        found["value"],
        found.get("key"),
        None if options.topic is not None else found.get("topic"),
        found.get("partition"),
        found.get("headers"),
    )
