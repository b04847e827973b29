"""Partitions of Iceberg tables by transforms: the option, the files, and what readers skip."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import Transform, UnknownTransform, VoidTransform, parse_transform

from barnabas.spark.errors import IcebergTableError, OptionError
from barnabas.spark.iceberg.catalog import IcebergOptions, TableName, open_catalog, open_table
from barnabas.spark.iceberg.commit import commit_files
from barnabas.spark.iceberg.files import task_files
from barnabas.spark.iceberg.layout import iceberg_schema, prepare_table
from barnabas.spark.iceberg.maintenance import MaintainedIceberg
from barnabas.spark.iceberg.partitions import PartitionTerm, RowPartitions, parse_terms
from spark.iceberg_tables import named, now_ms, stored_files
from spark.tables import duckdb_connection

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("cost", pa.decimal128(9, 2)),
        ("raw", pa.binary()),
    ]
)
_TIMES = [
    dt.datetime(2013, 1, 1, 5, 17, 30, 123456, tzinfo=dt.UTC),
    dt.datetime(2013, 1, 1, 6, 0, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    dt.datetime(1, 2, 28, tzinfo=dt.UTC),
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    None,
]
_NAMES = ["grün/😀", "a b", "", "x", "grün-", None]
BATCH = pa.RecordBatch.from_pylist(
    [
        {
            "id": [0, -7, 1 << 40, 3, -1, None][i],
            "name": _NAMES[i],
            "at": at,
            "local": None if at is None else at.replace(tzinfo=None),
            "day": None if at is None else at.date(),
            "cost": None if at is None else Decimal("-12.34") * i,
            "raw": None if _NAMES[i] is None else _NAMES[i].encode(),
        }
        for i, at in enumerate(_TIMES)
    ],
    SCHEMA,
)


@pytest.fixture
def name(tmp_path: Path) -> TableName:
    return named(tmp_path)


def write(name: TableName, partition_by: str | None = None) -> Table:
    """Add the rows as the sink does."""
    terms = parse_terms(partition_by, SCHEMA.names) if partition_by else None
    plan = prepare_table(IcebergOptions(name, terms), SCHEMA)
    files = task_files(plan)
    files.write(BATCH)
    commit_files(name, plan, files.close(), False, None)
    return open_table(name)


def created(name: TableName, *terms: tuple[str, str | Transform[Any, Any]]) -> None:
    """Create a table as other programs do."""
    catalog = open_catalog(name)
    catalog.create_namespace_if_not_exists("lake")
    table = catalog.create_table(name.table, SCHEMA)
    with table.update_spec() as update:
        for column, transform in terms:
            update.add_field(column, transform)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("id", [("id", "identity")]),
        ("identity(id)", [("id", "identity")]),
        (
            "day(at), bucket(16, id),name",
            [("at", "day"), ("id", "bucket[16]"), ("name", "identity")],
        ),
        ("HOURS( at )", [("at", "hour")]),
        ("truncate(04,name)", [("name", "truncate[4]")]),
    ],
)
def test_the_option_has_columns_and_transforms(text: str, terms: list[tuple[str, str]]) -> None:
    found = parse_terms(text, SCHEMA.names)
    assert found == tuple(PartitionTerm(*each) for each in terms)
    assert parse_terms(", ".join(map(str, found)), SCHEMA.names) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("week(at)", r"has 'week\(at\)': a term is a column, year\(column\)"),
        ("bucket(id)", r"has 'bucket\(id\)'"),
        ("bucket(0, id)", r"has 'bucket\(0, id\)'"),
        ("day(2, at)", r"has 'day\(2, at\)'"),
        ("day(at", r"has 'day\(at'"),
        ("day(then)", "names then, which the rows do not have; they have id, name"),
    ],
)
def test_other_terms_are_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_terms(text, SCHEMA.names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("day(name)", "day cannot transform string"),
        ("bucket(2, id), bucket(2, id)", "Already added"),
        ("day(at), hour(at)", "conflicts"),
    ],
)
def test_a_table_that_cannot_have_the_partitions_is_not_created(
    name: TableName, text: str, message: str
) -> None:
    with pytest.raises(OptionError, match=f"which a table cannot be partitioned by: .*{message}"):
        write(name, text)
    assert not open_catalog(name).table_exists(name.table)


TABLE_SCHEMA = assign_fresh_schema_ids(iceberg_schema(SCHEMA))
TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket[5]", "truncate[3]", "void")


@pytest.mark.parametrize(
    ("column", "transform"),
    [
        (column, transform)
        for column in SCHEMA.names
        for transform in TRANSFORMS
        if parse_transform(transform).can_transform(TABLE_SCHEMA.find_type(column))
    ],
)
def test_rows_are_in_the_partitions_that_pyiceberg_computes(column: str, transform: str) -> None:
    source = TABLE_SCHEMA.find_field(column)

    def records(by: str) -> list[Any]:
        """The partitions of the rows by a transform, as the table's metadata has them."""
        field = PartitionField(source.field_id, 1000, parse_transform(by), "part")
        partitions = RowPartitions(TABLE_SCHEMA, PartitionSpec(field))
        [keys] = partitions.keys(BATCH)
        return [partitions.record((key,))[0] for key in keys.to_pylist()]

    change = parse_transform(transform).transform(source.field_type)
    assert records(transform) == [change(value) for value in records("identity")]


QUERIES: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "hour": ("hour(at)", "at >= '2013-01-01T06:00:00+00:00'", lambda row: row["id"] == -7),
    "day": ("day(local)", "local < '1970-01-01T00:00:00'", lambda row: row["id"] in (1 << 40, 3)),
    "bucket": ("bucket(16, id)", "id = 3", lambda row: row["id"] == 3),
    "truncate": ("truncate(4, name)", "name = 'grün-'", lambda row: row["name"] == "grün-"),
    "null": ("bucket(4, name), name", "name is null", lambda row: row["name"] is None),
}


@pytest.mark.parametrize(("partition_by", "query", "wanted"), QUERIES.values(), ids=QUERIES)
def test_readers_skip_partitions_and_lose_no_row(
    name: TableName, partition_by: str, query: str, wanted: Callable[[Any], bool]
) -> None:
    table = write(name, partition_by)
    every = BATCH.to_pylist()
    scan = table.scan(query)
    assert len(list(scan.plan_files())) < len(list(table.scan().plan_files()))
    assert _unordered(scan.to_arrow().to_pylist(), [row for row in every if wanted(row)])
    assert _unordered(pl.scan_iceberg(table).collect().to_dicts(), every)


def _unordered(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    return sorted(map(str, found)) == sorted(map(str, expected))


def test_maintenance_and_appends_keep_transforms(name: TableName, tmp_path: Path) -> None:
    for _ in range(2):
        table = write(name, "bucket(4, id), year(at), truncate(2, name)")
    before = {each.file.partition for each in table.scan().plan_files()}
    maintained = MaintainedIceberg(name)
    assert maintained.compact(1 << 20, lambda *_: None).removed_files == 2 * len(before)
    maintained.expire(now_ms(), execute=True, progress=lambda *_: None)
    tasks = list(open_table(name).scan().plan_files())
    assert {each.file.partition for each in tasks} == before
    assert len(stored_files(tmp_path)) == len(tasks) == len(before)
    found = open_table(name).scan().to_arrow().to_pylist()
    assert _unordered(found, BATCH.to_pylist() * 2)


def test_duckdb_reads_partitions_by_transforms(name: TableName) -> None:
    table = write(name, "day(at), bucket(4, id)")
    path = table.metadata_location.removeprefix("file://")
    query = f"select name from iceberg_scan('{path}') where \"at\" >= '2013-01-01T00:00:00Z'"
    with duckdb_connection() as connection:
        found = connection.execute(query).fetchall()
    assert sorted(found) == [("a b",), ("grün/😀",)]


def test_tables_of_other_programs_take_rows(name: TableName) -> None:
    created(name, ("id", "bucket[4]"), ("name", VoidTransform()), ("at", "month"))
    assert len(list(write(name, "bucket(4, id), month(at)").scan().plan_files())) > 3
    with pytest.raises(
        IcebergTableError,
        match=r"partitioned by \(bucket\(4, id\), month\(at\)\), .* is \(day\(at\)\): leave it",
    ):
        write(name, "day(at)")


def test_tables_with_unknown_transforms_are_refused(name: TableName) -> None:
    catalog = open_catalog(name)
    catalog.create_namespace("lake")
    spec = PartitionSpec(PartitionField(1, 1000, UnknownTransform("zorder"), "z"))
    catalog.create_table(name.table, TABLE_SCHEMA, partition_spec=spec)
    with pytest.raises(IcebergTableError, match=r"the sink cannot place rows by unknown\(id\)"):
        write(name)


def test_partitions_by_a_field_of_a_struct_take_rows(name: TableName) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("part", pa.struct([("x", pa.int32()), ("y", pa.string())]))]
    )
    catalog = open_catalog(name)
    catalog.create_namespace("lake")
    table = catalog.create_table(name.table, schema)
    with table.update_spec() as update:
        update.add_field("part.y", "truncate[1]")
    plan = prepare_table(IcebergOptions(name), schema)
    files = task_files(plan)
    rows = [{"id": 1, "part": {"x": 1, "y": "ab"}}, {"id": 2, "part": None}]
    files.write(pa.RecordBatch.from_pylist(rows, schema))
    commit_files(name, plan, files.close(), False, None)
    found = open_table(name).scan()
    assert {each.file.partition[0] for each in found.plan_files()} == {"a", None}
    assert _unordered(found.to_arrow().to_pylist(), rows)
