"""What protects a Delta table: CHECK constraints, invariants and NOT NULL."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema

from barnabas.spark.delta.constraints import check_not_null, translated
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.errors import DeltaTableError
from spark.delta_tables import column, create_table, listing, stored_rows, write

COLUMNS = [
    column("v"),
    column("Name", "string"),
    column("day", "date"),
    column("at", "timestamp"),
    column("flag", "boolean"),
    column("part", {"type": "struct", "fields": [column("X")]}),
    column("case"),
    column("price", "decimal(10,2)"),
    column("ratio", "double"),
]
MINUTE = dt.datetime(2013, 1, 1, 5, 17, tzinfo=dt.UTC)


def rows_of(*values: int | None) -> pa.Table:
    return pa.table({"v": pa.array(values, pa.int64())})


def checked_table(directory: Path, **expressions: str) -> DeltaOptions:
    """A table with a column v, one row, and CHECK constraints."""
    return create_table(
        directory / "table",
        [column("v")],
        rows_of(1),
        protocol={"minReaderVersion": 1, "minWriterVersion": 3},
        properties={f"delta.constraints.{key}": text for key, text in expressions.items()},
    )


def refused(options: DeltaOptions, rows: pa.Table, message: str, *, written: bool = False) -> None:
    before = stored_rows(options)
    files = listing(options)
    with pytest.raises(DeltaTableError, match=message):
        write(options, rows)
    assert stored_rows(options) == before
    if not written:
        assert listing(options) == files


@pytest.mark.parametrize("value", [-5, None])
def test_a_row_for_which_a_check_is_false_or_null_is_refused(
    value: int | None, tmp_path: Path
) -> None:
    options = checked_table(tmp_path, positive="v > 0")
    refused(
        options,
        rows_of(1, value, 2),
        rf"table: 1 of 3 rows .* violate the CHECK constraint positive \(v > 0\) .*'v': {value}",
    )
    write(options, rows_of(7))
    assert [each["v"] for each in stored_rows(options)] == [1, 7]


def test_delta_rs_refuses_the_same_rows(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    options = checked_table(tmp_path, positive="v > 0")
    for value in (-5, None):
        with pytest.raises(Exception, match="1 rows failed validation"):
            write_deltalake(options.address, rows_of(value), mode="append")


def test_all_constraints_are_checked(tmp_path: Path) -> None:
    options = checked_table(tmp_path, low="v > 0", high="v <= 10 AND v <> 5")
    for value, name in ((0, "low"), (11, "high"), (5, "high")):
        refused(options, rows_of(value), f"CHECK constraint {name}")


def test_a_field_of_a_null_is_null_in_a_check(tmp_path: Path) -> None:
    part = {"type": "struct", "fields": [column("x")]}
    kind = pa.struct([("x", pa.int64())])
    options = create_table(
        tmp_path / "table",
        [column("part", part)],
        pa.table({"part": pa.array([], kind)}),
        properties={"delta.constraints.known": "part.x is not null"},
    )
    # The null has the value 7 behind it, as Arrow allows.
    hidden = pa.StructArray.from_arrays([pa.array([7])], ["x"], mask=pa.array([True]))
    refused(options, pa.table({"part": hidden}), "CHECK constraint known.*'part.x': None")


def test_an_invariant_of_a_column_is_checked(tmp_path: Path) -> None:
    invariant = json.dumps({"expression": {"expression": "v > 3"}})
    options = create_table(
        tmp_path / "table", [column("v", **{"delta.invariants": invariant})], rows_of(4)
    )
    refused(options, rows_of(3), r"the invariant \(v > 3\) of column v")
    write(options, rows_of(5))


def test_a_text_longer_than_its_varchar_is_refused(tmp_path: Path) -> None:
    kind = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    options = create_table(
        tmp_path / "table", [column("s", "string", **kind)], pa.table({"s": ["a"]})
    )
    write(options, pa.table({"s": ["abc", None, "grü"]}))
    refused(options, pa.table({"s": ["abcd"]}), r"the type varchar\(3\) of column s")


def test_a_table_with_a_padded_text_is_refused(tmp_path: Path) -> None:
    kind = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
    options = create_table(
        tmp_path / "table", [column("s", "string", **kind)], pa.table({"s": ["a  "]})
    )
    refused(options, pa.table({"s": ["abc"]}), r"the type char\(3\) of column s.*only VARCHAR")


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("v / 2 > 0", "'/ 2 > 0' is not supported"),
        ("v rlike 'a'", "no column rlike"),
        ("regexp_like(v, 'a')", "the function regexp_like"),
        ("missing > 0", "no column missing"),
        ("v = 'it''s'", "is not supported"),
        (r"v = 'a\n'", "is not supported"),
        ("v > 1L", "is not supported"),
        ("v > 0 AND", "delta-rs cannot evaluate"),
    ],
)
def test_a_table_whose_check_cannot_be_evaluated_is_refused(
    expression: str, part: str, tmp_path: Path
) -> None:
    options = checked_table(tmp_path, odd=expression)
    refused(options, rows_of(1), f"checkConstraints.*{part}")


@pytest.mark.parametrize(
    ("expression", "translation"),
    [
        ("V > 0", "c0 > 0"),
        ("NAME = \"x\" or name like 'a%'", "c0 = \"x\" OR c0 LIKE 'a%'"),
        ("length(name) BETWEEN 1 AND v", "length ( c0 ) BETWEEN 1 AND c1"),
        ("part.x IN (1, 2)", "c0 IN ( 1 , 2 )"),
        ("day >= date '2013-01-01'", "c0 >= DATE '2013-01-01'"),
        ("NOT (flag <=> true)", "NOT ( c0 <=> TRUE )"),
        ("`case` = 1", "c0 = 1"),
        ("not(v = 1)", "NOT ( c0 = 1 )"),
        ("v+1.5e3 != -v", "c0 + 1.5e3 != - c0"),
        ("coalesce(v, 0) % 2 == 0", "coalesce ( c0 , 0 ) % 2 == 0"),
    ],
)
def test_expressions_of_spark_are_translated(expression: str, translation: str) -> None:
    assert translated("it", expression, COLUMNS).expression == translation


def test_paths_have_the_exact_names_of_the_table() -> None:
    found = translated("it", "PART.x > V AND name is null", COLUMNS)
    assert found.paths == (("part", "X"), ("v",), ("Name",))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("at > '2013-01-01'", "depends on a time zone"),
        ("case when v = 1 then true end", "case is a keyword and a column"),
        ("part.y > 0", "no column part.y"),
        ("v.x > 0", "no column v.x"),
        ("v > 0 -- v", "contains a comment"),
        ("price > ratio", "decimal and floating-point"),
    ],
)
def test_expressions_that_could_mean_something_else_are_not_translated(
    expression: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        translated("it", expression, COLUMNS)


def required(name: str, kind: Any = "long") -> dict[str, Any]:
    return column(name, kind, nullable=False)


STRUCT = {"type": "struct", "fields": [required("x")]}
NESTED = [
    ("v", required("v"), pa.int64(), [1, None], "v is NOT NULL, and 1 of 2 rows"),
    ("s", column("s", STRUCT), pa.struct([("x", pa.int64())]), [None, {"x": None}], "s.x is NOT"),
    (
        "a",
        column("a", {"type": "array", "elementType": "long", "containsNull": False}),
        pa.list_(pa.int64()),
        [None, [], [1, None]],
        "a.element is NOT NULL",
    ),
    (
        "m",
        column(
            "m",
            {
                "type": "map",
                "keyType": "string",
                "valueType": STRUCT,
                "valueContainsNull": True,
            },
        ),
        pa.map_(pa.string(), pa.struct([("x", pa.int64())])),
        [None, [("k", None)], [("k", {"x": None})]],
        "m.value.x is NOT NULL",
    ),
]


@pytest.mark.parametrize(("name", "field", "kind", "values", "message"), NESTED)
def test_a_null_where_the_table_allows_none_is_refused(
    name: str, field: dict[str, Any], kind: pa.DataType, values: list[Any], message: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    allowed = values[:-1]
    first = pa.table({name: pa.array(allowed, kind)})
    options = create_table(tmp_path / "table", [field], first)
    write(options, first)
    assert len(stored_rows(options)) == 2 * len(allowed)
    refused(options, pa.table({name: pa.array(values, kind)}), message)


def test_columns_of_new_tables_are_nullable_at_all_depths(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("n", pa.int64(), nullable=False),
            pa.field("s", pa.struct([pa.field("x", pa.int64(), nullable=False)]), nullable=False),
            pa.field("a", pa.list_(pa.field("element", pa.int64(), nullable=False))),
        ]
    )
    options = DeltaOptions(str(tmp_path / "table"))
    write(options, pa.Table.from_pylist([{"n": 1, "s": {"x": 1}, "a": [1]}], schema))
    assert "false" not in DeltaTable(options.address).schema().to_json()
    loose = pa.schema(
        [("n", pa.int64()), ("s", pa.struct([("x", pa.int64())])), ("a", pa.list_(pa.int64()))]
    )
    write(options, pa.Table.from_pylist([{"n": None, "s": {"x": None}, "a": [None]}], loose))
    assert len(stored_rows(options)) == 2


def test_an_empty_partition_value_is_a_null(tmp_path: Path) -> None:
    schema = Schema([Field("id", "long"), Field("kind", "string", nullable=False)])
    DeltaTable.create(tmp_path / "table", schema, partition_by=["kind"])
    options = DeltaOptions(str(tmp_path / "table"))
    write(options, pa.table({"id": [1], "kind": ["a"]}))
    refused(options, pa.table({"id": [2], "kind": [""]}), "kind is NOT NULL")


def test_only_the_rows_of_a_batch_are_checked() -> None:
    fields = [field for _, field, _, _, _ in NESTED]
    # The batches of one group are slices of the same arrays.
    arrays = [
        pa.array([values[-1], values[0], values[-1]], kind) for _, _, kind, values, _ in NESTED
    ]
    batch = pa.RecordBatch.from_arrays(arrays, [name for name, _, _, _, _ in NESTED])
    check_not_null(batch.slice(1, 1), fields, "table")
    for field in fields:
        with pytest.raises(DeltaTableError, match="1 of 2 rows"):
            check_not_null(batch.slice(1, 2), [field], "table")
