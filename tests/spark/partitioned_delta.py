"""A Delta table with partitions by all types that have values which are hard to read back."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.spark.delta.columns import columns_of
from barnabas.spark.delta.files import WrittenFile, task_files
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.delta.plan import plan_write
from barnabas.spark.delta.table import commit_files, load_table, open_files
from barnabas.spark.tables.rows import write_all

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("flag", pa.bool_()),
        ("cost", pa.decimal128(20, 10)),
        ("real", pa.float64()),
        ("single", pa.float32()),
        ("whole", pa.int32()),
        ("spaß", pa.string()),
    ]
)
PARTITION_BY = tuple(SCHEMA.names[1:])
TEXTS = (
    "a b", "a/b", "a=b", "100%", "%20", "a:b", "grün", "😀", "a#b", "a?b", "a+b", "a&b", "..",
    "*", 'q"', "q'", "\\", "nl\nn", "{x}[y]", None,
)  # fmt: skip
_DAYS = (dt.date(2013, 1, 1), dt.date(1, 1, 1), None)
_TIMES = (
    dt.datetime(2013, 1, 1, 5, 17, 30, 123456, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=dt.UTC),
    None,
)
_COSTS = (Decimal("1.5"), Decimal("0.0000001"), None)
_REALS = (0.1, 1e20, math.inf, -math.inf, None)


def rows() -> list[dict[str, Any]]:
    """The rows of the table, by id."""
    return [
        {
            "id": i,
            "text": text,
            "day": _DAYS[i % 3],
            "at": _TIMES[i % 3],
            "local": None if (time := _TIMES[i % 3]) is None else time.replace(tzinfo=None),
            "flag": (True, False, None)[i % 3],
            "cost": None if (cost := _COSTS[i % 3]) is None else cost.quantize(Decimal("1e-10")),
            "real": _REALS[i % 5],
            "single": (0.5, -2.0, None)[i % 3],
            "whole": (-3, 7, None)[i % 3],
            "spaß": text,
        }
        for i, text in enumerate(TEXTS)
    ]


def write(directory: Path, written: Iterable[dict[str, Any]]) -> None:
    """Add rows to the table as the sink does."""
    write_batch(DeltaOptions(str(directory), PARTITION_BY), list(written), SCHEMA)


def write_batch(
    options: DeltaOptions, written: list[dict[str, Any]], schema: pa.Schema
) -> list[WrittenFile]:
    """Add rows to a table by one commit of one task."""
    plan = plan_write(options, columns_of(schema), load_table(options), removes_rows=False)
    batch = pa.RecordBatch.from_pylist(written, schema)
    files = write_all(task_files(open_files(options), plan), [batch])
    commit_files(options, plan, files, None)
    return files
