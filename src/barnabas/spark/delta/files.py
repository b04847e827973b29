"""Parquet files that a task writes for a Delta table: partitions, directories and statistics.

The table's log assigns a file to its partition. Files are in directories of their partition all the
same, as other writers do: some readers take the values from the path. Values of partitions are text
as in Delta's protocol, "Partition Value Serialization"; statistics are those of the protocol too.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from barnabas.spark.errors import DeltaTableError
from barnabas.spark.tables.rows import ParquetFile, PartitionedFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow.parquet as pq

    from barnabas.spark.delta.plan import WritePlan
    from barnabas.spark.tables.rows import FileStorage

# The name that Hive gave to the directory of rows without a value.
_NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
# File systems refuse longer names.
_DIRECTORY_BYTES_MAX = 255
# Longer texts add little, and a truncated maximum would be wrong.
_TEXT_LENGTH_MAX = 64
PartitionValues = dict[str, str | None]


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


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete file that is ready to be committed."""

    # Path relative to the table's directory.
    path: str
    size: int
    partition_values: PartitionValues
    modified_ms: int
    # Delta's statistics, as JSON.
    statistics: str


def task_files(storage: FileStorage, plan: WritePlan) -> PartitionedFiles[WrittenFile]:
    """Return new files for the rows of one task, which are checked and written by the plan."""
    import pyarrow as pa

    # Columns in the files: Delta stores partition values only in the log.
    stored = pa.schema([each for each in plan.schema if each.name not in plan.partition_by])

    def open_file(values: tuple[Any, ...]) -> ParquetFile[WrittenFile]:
        texts = {
            name: partition_text(value)
            for name, value in zip(plan.partition_by, values, strict=True)
        }
        path = f"{partition_directory(texts)}part-{uuid.uuid4()}.snappy.parquet"

        def describe(size: int, metadata: pq.FileMetaData) -> WrittenFile:
            statistics = json.dumps(column_statistics(metadata))
            return WrittenFile(path, size, texts, int(time.time() * 1000), statistics)

        return ParquetFile(storage, path, stored, describe, compression="snappy")

    return PartitionedFiles(
        plan.fitted, lambda batch: [batch.column(name) for name in plan.partition_by], open_file
    )
