"""Which rows an Iceberg table takes, and how it is changed for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.errors import IcebergTableError
from barnabas.spark.iceberg.catalog import TableName, absolute, open_table
from barnabas.spark.iceberg.files import conformed
from spark.iceberg_tables import SCHEMA, Writer, named, rows as stored_ids


@pytest.fixture
def name(tmp_path: Path) -> TableName:
    return named(tmp_path)


def columns(name: TableName) -> dict[str, str]:
    return {each.name: str(each.field_type) for each in open_table(name).schema().fields}


def test_a_new_table_has_the_columns_and_partitions_of_the_rows(name: TableName) -> None:
    Writer(name, partition_by=("kind",))
    assert columns(name) == {"id": "long", "kind": "string"}
    assert [each.name for each in open_table(name).spec().fields] == ["kind"]
    Writer(name)
    Writer(name, partition_by=("kind",))


def test_columns_of_new_tables_are_nullable_at_all_depths(name: TableName) -> None:
    """Spark says of the first rows that they have no nulls; later rows may have some."""
    strict = pa.schema(
        [
            pa.field("n", pa.int64(), nullable=False),
            pa.field("s", pa.struct([pa.field("x", pa.int64(), nullable=False)])),
            pa.field("a", pa.list_(pa.field("element", pa.int64(), nullable=False))),
            pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
        ]
    )
    schema = Writer(name, schema=strict).plan.schema
    assert "required" in schema
    assert "true" not in schema


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("id", pa.string()), ("kind", pa.string())], "id is string in the rows and long in"),
        ([("id", pa.int64())], "kind is missing in the rows and string in the table"),
        ([*SCHEMA, ("more", pa.int32())], "more is int in the rows and missing in the table"),
    ],
)
def test_rows_with_other_columns_are_refused(
    name: TableName, fields: list[tuple[str, pa.DataType]], message: str
) -> None:
    Writer(name)
    with pytest.raises(IcebergTableError, match=f"{message}.*set mergeSchema to true"):
        Writer(name, schema=pa.schema(fields))


def test_smaller_types_fit_larger_ones(name: TableName) -> None:
    Writer(name)
    Writer(name, schema=pa.schema([("id", pa.int8()), ("kind", pa.string())]))
    assert columns(name)["id"] == "long"


def test_a_merge_adds_columns_and_widens_types(name: TableName) -> None:
    Writer(name, schema=pa.schema([("id", pa.int32()), ("part", pa.struct([("x", pa.int32())]))]))
    wider = pa.struct([("x", pa.int32()), ("y", pa.timestamp("us", "UTC"))])
    Writer(
        name,
        schema=pa.schema([("id", pa.int64()), ("more", pa.string()), ("part", wider)]),
        merge_schema=True,
    )
    assert {each: kind for each, kind in columns(name).items() if each != "part"} == {
        "id": "long",
        "more": "string",
    }
    assert "timestamptz" in columns(name)["part"]


def test_a_merge_accepts_rows_without_a_column(name: TableName) -> None:
    Writer(name)
    Writer(name, schema=pa.schema([("id", pa.int64())]), merge_schema=True)
    assert set(columns(name)) == {"id", "kind"}


def test_a_merge_refuses_types_that_cannot_be_widened(name: TableName) -> None:
    Writer(name)
    with pytest.raises(IcebergTableError, match="id is string in the rows and long in the table"):
        Writer(name, schema=pa.schema([("id", pa.string())]), merge_schema=True)


def test_a_merge_changes_no_table_that_the_rows_still_would_not_fit(name: TableName) -> None:
    Writer(name)
    before = columns(name)
    with pytest.raises(IcebergTableError, match="id is string in the rows and long in"):
        Writer(
            name, schema=pa.schema([("id", pa.string()), ("more", pa.string())]), merge_schema=True
        )
    assert columns(name) == before


def struct(*fields: str) -> pa.DataType:
    return pa.struct([(each, pa.int64()) for each in fields])


NESTS: dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any]]] = {
    "struct": (lambda kind: kind, lambda value: value),
    "list": (pa.list_, lambda value: [value]),
    "map": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
    "map in a struct": (
        lambda kind: pa.struct([("m", pa.map_(pa.string(), pa.list_(kind)))]),
        lambda value: {"m": [("k", [value])]},
    ),
}


@pytest.mark.parametrize(("typed", "valued"), NESTS.values(), ids=NESTS)
def test_structs_grow_and_rows_may_lack_fields_at_all_depths(
    name: TableName,
    typed: Callable[[pa.DataType], pa.DataType],
    valued: Callable[[Any], Any],
) -> None:
    for given in ({"x": 1}, {"y": 2, "x": 3}, {"y": 4}):
        schema = pa.schema([("c", typed(struct(*given)))])
        rows = pa.Table.from_pylist([{"c": valued(given)}], schema)
        Writer(name, schema=schema, merge_schema=True).write_rows(rows)
    found = open_table(name).scan().to_arrow()["c"].to_pylist()
    expected = [{"x": 1, "y": None}, {"x": 3, "y": 2}, {"x": None, "y": 4}]
    assert sorted(found, key=repr) == sorted(map(valued, expected), key=repr)
    with pytest.raises(IcebergTableError, match="x is missing in the rows and long in the table"):
        Writer(name, schema=pa.schema([("c", typed(struct("y")))]))


def test_structs_that_are_keys_of_maps_do_not_grow(name: TableName) -> None:
    """Iceberg's specification forbids it."""
    Writer(name, schema=pa.schema([("c", pa.map_(struct("x"), pa.string()))]))
    schema = pa.schema([("c", pa.map_(struct("x", "y"), pa.string()))])
    with pytest.raises(IcebergTableError, match=r"c\.key\.y is long in the rows and missing in"):
        Writer(name, schema=schema, merge_schema=True)


@pytest.mark.parametrize(
    ("stored", "asked", "message"),
    [
        (
            ("kind",),
            ("id",),
            r"lake\.flights is partitioned by \(kind\), .*Columns is \(id\): leave",
        ),
        (
            ("day(at)",),
            ("at",),
            r"partitioned by \(day\(at\)\), .* is \(at\): .*set it to day\(at\)",
        ),
        (
            None,
            ("kind",),
            r"lake\.flights has no partitions, .* is \(kind\): leave it out\. Nothing",
        ),
    ],
)
def test_other_partitions_are_refused(
    name: TableName, stored: tuple[str, ...] | None, asked: tuple[str, ...], message: str
) -> None:
    schema = SCHEMA.append(pa.field("at", pa.timestamp("us", "UTC")))
    Writer(name, schema=schema, partition_by=stored)
    before = columns(name)
    wider = schema.append(pa.field("more", pa.int64()))
    with pytest.raises(IcebergTableError, match=message):
        Writer(name, schema=wider, partition_by=asked, merge_schema=True)
    assert columns(name) == before


@pytest.mark.parametrize("tables", [1, 4])
def test_queries_that_create_a_catalog_at_once_all_write(tmp_path: Path, tables: int) -> None:
    """The database with its tables, the namespace and one or more tables."""
    names = [named(tmp_path, f"lake.t{number % tables}") for number in range(4)]
    start = threading.Barrier(len(names))

    def run(number: int) -> bool:
        start.wait()
        return Writer(names[number]).write(number, batch=0, query=f"query {number}")

    with ThreadPoolExecutor(len(names)) as pool:
        assert all(pool.map(run, range(len(names))))
    found = [each for name in names[:tables] for each in stored_ids(name)]
    assert sorted(found) == [0, 1, 2, 3]


def test_null_in_a_required_column_is_refused() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(IcebergTableError, match="id is null in 1 rows, and required"):
        conformed(pa.record_batch({"id": pa.array([1, None], pa.int64())}), schema)


def test_paths_of_a_catalog_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = absolute({"uri": "sqlite:///catalog.db", "warehouse": "warehouse"})
    assert found == {
        "uri": f"sqlite:///{tmp_path}/catalog.db?timeout=60",
        "warehouse": f"{tmp_path}/warehouse",
    }
    remote = {"uri": "http://127.0.0.1:1", "warehouse": "prod"}
    assert absolute(remote) == remote
