"""Compares source tables and Delta tables, row by row and value by value."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
from deltalake import DeltaTable

import upserts
from airline import TABLES
from postgres import Postgres

NULL = "\\N"
Rows = dict[tuple[Any, ...], dict[str, Any]]


def differences(server: Postgres, tables: Path) -> list[str]:
    """Return descriptions of missing, unexpected and different rows; empty if all is equal."""
    problems: list[str] = []
    sources = {name: (name, key) for name, key in TABLES.items()}
    columns = ", ".join(upserts.COLUMNS)
    sources[upserts.NAME] = (f"(SELECT {columns} FROM {upserts.SOURCE})", upserts.KEY)
    for name, (source, key) in sources.items():
        if DeltaTable.is_deltatable(str(tables / name)):
            delta = DeltaTable(tables / name).to_pyarrow_table()
            csv = server.run(f"\\copy {source} TO STDOUT (FORMAT csv, HEADER, NULL '{NULL}')")
            problems += differences_of_table(name, key, csv, delta)
        else:
            problems.append(f"{name}: there is no Delta table")
    return problems


def count_rows(tables: Path) -> int:
    """Return the number of rows of all Delta tables."""
    paths = [tables / name for name in TABLES]
    found = [DeltaTable(path) for path in paths if DeltaTable.is_deltatable(str(path))]
    return sum(table.to_pyarrow_dataset().count_rows() for table in found)


def differences_of_table(name: str, key: list[str], csv: str, delta: pa.Table) -> list[str]:
    """Compare a Delta table with the rows of PostgreSQL as CSV with a header."""
    columns = csv.partition("\n")[0].split(",")
    missing = [column for column in columns if column not in delta.column_names]
    if missing:
        return [f"{name}: the Delta table has no column {', '.join(missing)}"]
    delta = delta.select(columns)
    expected, found = _by_key(_parse(csv, delta.schema), key), _by_key(delta, key)
    problems = []
    if len(found) < delta.num_rows:
        problems.append(f"{name}: {delta.num_rows - len(found)} keys are there more than once")
    for what, left, right in (("missing", expected, found), ("unexpected", found, expected)):
        keys = left.keys() - right.keys()
        if keys:
            problems.append(f"{name}: {len(keys)} rows {what}, one is {min(keys, key=str)}")
    wrong = [each for each in expected.keys() & found.keys() if expected[each] != found[each]]
    if wrong:
        first = min(wrong, key=str)
        values = [
            f"{column} {found[first][column]!r:.60} instead of {expected[first][column]!r:.60}"
            for column in columns
            if found[first][column] != expected[first][column]
        ]
        problems.append(f"{name}: {len(wrong)} rows differ, one is {first}: {', '.join(values)}")
    return problems


def _parse(csv: str, schema: pa.Schema) -> pa.Table:
    """Read PostgreSQL's rows with the types of the Delta table."""
    return pacsv.read_csv(
        io.BytesIO(csv.encode()),
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types=schema,
            null_values=[NULL],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )


def _by_key(table: pa.Table, key: list[str]) -> Rows:
    return {tuple(row[part] for part in key): row for row in table.to_pylist()}
