"""Statistics of Parquet files, in the format of Delta's protocol."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Longer texts add little, and a truncated maximum would be wrong.
_TEXT_LENGTH_MAX = 64


def column_statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return the row count of a file, and minimum, maximum and nulls of its simple columns."""
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        name = column.name
        # A field of a struct, list or map is not a column itself.
        if column.path != name or column.max_repetition_level:
            continue
        chunks = [metadata.row_group(each).column(index) for each in range(metadata.num_row_groups)]
        found = [each.statistics for each in chunks]
        if not found or any(each is None or not each.has_null_count for each in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        valued = [each for each, chunk in zip(found, chunks, strict=True) if each.num_values]
        if not valued or not all(each.has_min_max for each in valued):
            continue
        try:
            least = _json_value(min(each.min for each in valued))
            most = _json_value(max(each.max for each in valued))
        except OverflowError:
            # Python has no dates after the year 9999, which Spark has. Bounds are optional.
            continue
        if least is not None and most is not None:
            smallest[name], largest[name] = least, most
    return {
        "numRecords": metadata.num_rows,
        "minValues": smallest,
        "maxValues": largest,
        "nullCount": nulls,
    }


def _json_value(value: Any) -> Any:
    """Convert a value for the statistics; None if statistics cannot contain it."""
    match value:
        case bool() | bytes() | None:
            return None
        case int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= _TEXT_LENGTH_MAX else None
        case dt.datetime():
            return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
        case dt.date():
            return value.isoformat()
        case _:
            return None
