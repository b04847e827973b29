"""Which rows a Delta table takes, and how it is changed for them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from barnabas.spark.delta.columns import differences
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.errors import DeltaTableError
from barnabas.spark.tables.commits import BatchIdentity
from spark.delta_tables import (
    Writer,
    column,
    create_table,
    listing,
    stored_columns,
    stored_rows,
    write,
)

FIRST = pa.table({"id": [1], "kind": ["a"]})
MERGE = {"merge_schema": True}
REPLACE = {"overwrite_schema": True}


@pytest.fixture
def options(tmp_path: Path) -> DeltaOptions:
    made = DeltaOptions(str(tmp_path / "table"))
    write(made, FIRST)
    return made


def types(options: DeltaOptions) -> dict[str, Any]:
    return {each["name"]: each["type"] for each in stored_columns(options)}


def refused(options: DeltaOptions, rows: pa.Table, message: str, **how: Any) -> None:
    before = listing(options)
    with pytest.raises(DeltaTableError, match=message):
        write(options, rows, **how)
    assert listing(options) == before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"id": ["1"], "kind": ["a"]}, "id is string in the rows and long in the table .cast it"),
        ({"id": [1.5], "kind": ["a"]}, "id is double in the rows and long .*overwriteSchema=true"),
        ({"id": [1]}, "kind is missing in the rows and string in the table .set mergeSchema"),
        (
            {"id": [1], "kind": ["a"], "more": [1]},
            "more is long in the rows and missing in the table .set mergeSchema",
        ),
    ],
)
def test_rows_with_other_columns_are_refused(
    options: DeltaOptions, rows: dict[str, list[Any]], message: str
) -> None:
    refused(options, pa.table(rows), f"do not fit {options.address}: {message}")


def test_a_merge_adds_columns_and_stores_null_for_missing_ones(options: DeltaOptions) -> None:
    merging = dataclasses.replace(options, **MERGE)
    write(merging, pa.table({"more": [1.5], "id": [2]}))
    write(merging, pa.table({"kind": ["c"]}))
    assert types(options) == {"id": "long", "kind": "string", "more": "double"}
    assert stored_rows(options) == [
        {"id": 1, "kind": "a", "more": None},
        {"id": 2, "kind": None, "more": 1.5},
        {"id": None, "kind": "c", "more": None},
    ]


def test_a_merge_adds_fields_at_all_depths_and_keeps_what_is_there(tmp_path: Path) -> None:
    old = {"type": "struct", "fields": [column("x", nullable=False, comment="kept")]}
    array = {"type": "array", "elementType": old, "containsNull": True}
    options = create_table(
        tmp_path / "table",
        [column("s", old), column("a", array)],
        pa.table({"s": [{"x": 1}], "a": [[{"x": 1}]]}),
    )
    merging = dataclasses.replace(options, **MERGE)
    write(merging, pa.table({"s": [{"y": 2, "x": 3}], "a": [[{"z": 4, "x": 5}]]}))
    assert stored_rows(options) == [
        {"s": {"x": 1, "y": None}, "a": [{"x": 1, "z": None}]},
        {"s": {"x": 3, "y": 2}, "a": [{"x": 5, "z": 4}]},
    ]
    kinds = types(options)
    for fields in (kinds["s"]["fields"], kinds["a"]["elementType"]["fields"]):
        assert fields[0] == column("x", nullable=False, comment="kept")
    refused(merging, pa.table({"s": [{"y": 2}]}), "s.x is missing in the rows and long NOT NULL")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"id": ["1"]}, "id is string in the rows and long in the table"),
        ({"ID": [1]}, "id and ID differ only in case"),
        ({"more": [None]}, "more is void, and void is the type of SELECT NULL"),
        ({"more": [[None]]}, "more is array<void>, and void is the type"),
    ],
)
def test_a_merge_refuses_what_no_column_holds(
    options: DeltaOptions, rows: dict[str, list[Any]], message: str
) -> None:
    refused(dataclasses.replace(options, **MERGE), pa.table(rows), message)


def test_a_failed_batch_adds_no_columns(options: DeltaOptions) -> None:
    rows = pa.table({"more": [1]})
    Writer(dataclasses.replace(options, **MERGE), rows.schema).files(rows.to_batches()[0])
    assert types(options) == {"id": "long", "kind": "string"}


def actions(options: DeltaOptions) -> list[set[str]]:
    """The kinds of actions of each commit."""
    logs = sorted(Path(options.address, "_delta_log").glob("*.json"))
    return [{next(iter(json.loads(line))) for line in log.open()} for log in logs]


LIST = pa.list_(pa.struct([("x", pa.int64())]))


@pytest.mark.parametrize("partition_by", [None, ("id",), ("kind",)])
@pytest.mark.parametrize("properties", [{}, {"delta.appendOnly": "true"}])
def test_new_columns_and_their_rows_are_one_commit(
    tmp_path: Path, partition_by: tuple[str, ...] | None, properties: dict[str, str]
) -> None:
    options = DeltaOptions(str(tmp_path / "table"), partition_by, merge_schema=True)
    write(options, pa.table({"list": pa.array([[{"x": 1}]], LIST), **FIRST.to_pydict()}))
    if properties:
        DeltaTable(options.address).alter.set_table_properties(properties)
    before = DeltaTable(options.address).metadata()
    version = DeltaTable(options.address).version()
    rows = pa.table({"list": [[{"x": 2, "y": 3}]], "id": [2], "more": [1.5]})
    writer = Writer(options, rows.schema)
    assert writer.commit(writer.files(rows.to_batches()[0]), BatchIdentity("query", 0))
    assert DeltaTable(options.address).version() == version + 1
    assert actions(options)[-1] == {"commitInfo", "metaData", "add", "txn"}
    assert stored_rows(options) == [
        {"list": [{"x": 1, "y": None}], "id": 1, "kind": "a", "more": None},
        {"list": [{"x": 2, "y": 3}], "id": 2, "kind": None, "more": 1.5},
    ]
    after = DeltaTable(options.address).metadata()
    assert (after.id, after.configuration) == (before.id, before.configuration)
    assert after.partition_columns == list(partition_by or ())


def test_a_table_of_nested_columns_only_gets_new_ones_before_the_rows(tmp_path: Path) -> None:
    """No condition of delta-rs selects files by such columns, so there are two commits."""
    options = DeltaOptions(str(tmp_path / "table"), merge_schema=True)
    write(options, pa.table({"list": pa.array([[{"x": 1}]], LIST)}))
    write(options, pa.table({"list": [[{"x": 2, "y": 3}]], "id": [2]}))
    assert [each - {"commitInfo"} for each in actions(options)[1:]] == [{"metaData"}, {"add"}]
    assert len(stored_rows(options)) == 2


def test_two_writers_may_add_the_same_column(options: DeltaOptions) -> None:
    merging = dataclasses.replace(options, **MERGE)
    rows = pa.table({"more": [1]})
    writers = [Writer(merging, rows.schema) for _ in range(2)]
    for writer in writers:
        assert writer.commit(writer.files(rows.to_batches()[0]))
    assert len(stored_rows(options)) == 3


HELD = [
    (pa.int8(), 7, "integer", 7),
    (pa.int16(), 7, "double", 7.0),
    (pa.int32(), 1 << 30, "long", 1 << 30),
    (pa.float32(), 0.5, "double", 0.5),
    (pa.int32(), 12, "decimal(12,2)", Decimal("12.00")),
    (pa.decimal128(5, 2), Decimal("1.25"), "decimal(8,3)", Decimal("1.250")),
    (pa.null(), None, "long", None),
]
NOT_HELD = [
    (pa.int64(), "integer"),
    (pa.int32(), "float"),
    (pa.int64(), "double"),
    (pa.float64(), "float"),
    (pa.int32(), "decimal(11,2)"),
    (pa.decimal128(5, 2), "decimal(5,3)"),
    (pa.date32(), "timestamp"),
    (pa.timestamp("us"), "timestamp"),
    (pa.timestamp("us", "UTC"), "timestamp_ntz"),
    (pa.string(), "binary"),
]


@pytest.mark.parametrize(("rows", "value", "kind", "stored"), HELD)
def test_smaller_types_are_stored_in_larger_ones(
    rows: pa.DataType, value: Any, kind: str, stored: Any, tmp_path: Path
) -> None:
    options = create_table(
        tmp_path / "table", [column("v", kind)], pa.table({"v": pa.array([], pa.int64())})
    )
    write(options, pa.table({"v": pa.array([value], rows)}))
    assert types(options) == {"v": kind}
    assert [each["v"] for each in stored_rows(options) if "v" in each] == [stored]


@pytest.mark.parametrize(("rows", "kind"), NOT_HELD)
def test_types_that_could_lose_something_are_refused(
    rows: pa.DataType, kind: str, tmp_path: Path
) -> None:
    options = create_table(
        tmp_path / "table",
        [column("v", kind)],
        pa.table({"v": pa.array([], pa.int64())}),
        protocol={
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["timestampNtz"],
            "writerFeatures": ["timestampNtz"],
        },
    )
    for how in ({}, MERGE):
        changed = dataclasses.replace(options, **how)
        refused(
            changed,
            pa.table({"v": pa.array([], rows)}),
            rf"v is .* in the rows and {kind.replace('(', '.').replace(')', '.')}",
        )


NARROW, WIDE = (pa.struct([(name, pa.int64()) for name in names]) for names in ("x", "yx"))
MAPS = {
    "value": lambda kind: pa.map_(pa.string(), kind),
    "key": lambda kind: pa.map_(kind, pa.string()),
    "array of maps": lambda kind: pa.list_(pa.map_(pa.string(), kind)),
    "map in a struct": lambda kind: pa.struct([("m", pa.map_(pa.string(), pa.list_(kind)))]),
    "map of maps": lambda kind: pa.map_(pa.string(), pa.map_(pa.string(), kind)),
}


@pytest.mark.parametrize("nest", MAPS.values(), ids=MAPS)
def test_structs_inside_maps_do_not_get_new_fields(
    nest: Callable[[pa.DataType], pa.DataType], tmp_path: Path
) -> None:
    """delta-rs reads no file again whose maps have structs without some of the fields."""
    options = DeltaOptions(str(tmp_path / "table"), merge_schema=True)
    write(options, pa.table({"id": [1], "c": pa.nulls(1, nest(NARROW))}))
    wider = pa.table({"id": [2], "c": pa.nulls(1, nest(WIDE))})
    kinds = r"c.* is .*map<.*y:long.* in the rows and .*map<.*x:long.* in the table"
    for how in ({}, {"overwrite": True}):
        refused(options, wider, f"{kinds} .structs inside maps cannot get new fields", **how)
    write(dataclasses.replace(options, **REPLACE), wider, overwrite=True)
    assert stored_rows(options) == [{"id": 2, "c": None}]


def test_structs_inside_maps_may_lack_fields_and_have_them_in_another_order(
    tmp_path: Path,
) -> None:
    options = DeltaOptions(str(tmp_path / "table"), merge_schema=True)
    other = pa.struct([*reversed(list(WIDE))])
    for kind, value in ((WIDE, {"x": 1, "y": 2}), (other, {"x": 3, "y": 4}), (NARROW, {"x": 5})):
        rows = pa.array([[("k", value)]], pa.map_(pa.string(), kind))
        write(options, pa.table({"id": [value["x"]], "m": rows}))
    found = [each["m"] for each in stored_rows(options)]
    expected = [{"y": 2, "x": 1}, {"y": 4, "x": 3}, {"y": None, "x": 5}]
    assert found == [[("k", each)] for each in expected]


def test_an_array_without_nulls_fits_an_array_with_nulls(options: DeltaOptions) -> None:
    merging = dataclasses.replace(options, **MERGE)
    write(merging, pa.table({"a": pa.array([[1, None]], pa.list_(pa.int64()))}))
    strict = pa.list_(pa.field("element", pa.int32(), nullable=False))
    write(merging, pa.table({"a": pa.array([[2]], strict)}))
    assert sorted(str(each["a"]) for each in stored_rows(options)) == ["None", "[1, None]", "[2]"]


def test_an_overwrite_replaces_the_columns_in_one_commit(options: DeltaOptions) -> None:
    replacing = dataclasses.replace(options, **REPLACE)
    write(replacing, pa.table({"id": ["x"], "more": [1]}), overwrite=True)
    assert stored_rows(options) == [{"id": "x", "more": 1}]
    assert types(options) == {"id": "string", "more": "long"}
    assert DeltaTable(options.address).version() == 1


def test_an_overwrite_without_the_option_keeps_the_columns(options: DeltaOptions) -> None:
    refused(options, pa.table({"id": ["x"], "kind": ["a"]}), "id is string", overwrite=True)
    write(options, pa.table({"kind": ["b"], "id": [2]}), overwrite=True)
    assert stored_rows(options) == [{"id": 2, "kind": "b"}]


def test_replaced_columns_keep_what_the_table_says_of_equal_ones(tmp_path: Path) -> None:
    kept = column("id", nullable=False, comment="kept")
    options = create_table(tmp_path / "table", [kept, column("v")], pa.table({"id": [1], "v": [1]}))
    replacing = dataclasses.replace(options, **REPLACE)
    write(replacing, pa.table({"id": [2], "v": ["x"]}), overwrite=True)
    assert stored_columns(options) == [kept, column("v", "string")]


def test_columns_that_a_check_or_a_partition_needs_are_not_replaced(tmp_path: Path) -> None:
    options = DeltaOptions(str(tmp_path / "table"), ("kind",), overwrite_schema=True)
    write(options, FIRST)
    DeltaTable(options.address).alter.add_constraint({"positive": "id > 0"})
    refused(
        dataclasses.replace(options, partition_by=None),
        pa.table({"id": [1]}),
        "kind is missing in the rows, and the table is partitioned by it",
        overwrite=True,
    )
    refused(options, pa.table({"kind": ["a"]}), "no column id", overwrite=True)


@pytest.mark.parametrize("how", [MERGE, REPLACE])
def test_a_time_without_zone_needs_its_feature(options: DeltaOptions, how: dict[str, bool]) -> None:
    rows = pa.table({"at": pa.array([1], pa.timestamp("us"))})
    changed = dataclasses.replace(options, **how)
    refused(
        changed, rows, "does not have the feature timestampNtz", overwrite="overwrite_schema" in how
    )


def test_a_new_table_gets_the_feature_of_times_without_zone(tmp_path: Path) -> None:
    options = DeltaOptions(str(tmp_path / "table"), merge_schema=True)
    write(options, pa.table({"at": pa.array([1], pa.timestamp("us"))}))
    write(options, pa.table({"also": pa.array([1], pa.timestamp("us"))}))
    assert types(options) == {"at": "timestamp_ntz", "also": "timestamp_ntz"}
    assert len(stored_rows(options)) == 2


def test_the_partitions_of_the_table_are_used_without_an_option(tmp_path: Path) -> None:
    options = DeltaOptions(str(tmp_path / "table"), ("kind",))
    write(options, FIRST)
    write(DeltaOptions(options.address), pa.table({"id": [2], "kind": ["b"]}))
    assert stored_rows(options) == [{"id": 1, "kind": "a"}, {"id": 2, "kind": "b"}]
    write(DeltaOptions(options.address, merge_schema=True), pa.table({"id": [3]}))
    assert {"id": 3, "kind": None} in stored_rows(options)


@pytest.mark.parametrize("how", [{}, MERGE, REPLACE])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (("kind",), r"is partitioned by \(kind\), .*Columns is \(id\): .* set it to kind"),
        (None, r"has no partitions, and the option partitionColumns is \(id\): leave it out"),
    ],
)
def test_other_partitions_are_refused(
    tmp_path: Path,
    how: dict[str, bool],
    overwrite: bool,
    stored: tuple[str, ...] | None,
    message: str,
) -> None:
    options = DeltaOptions(str(tmp_path / "table"), stored)
    write(options, FIRST)
    other = DeltaOptions(options.address, ("id",), **how)
    refused(other, FIRST, f"{options.address} {message}", overwrite=overwrite)


def test_queries_that_create_a_table_at_once_all_write(tmp_path: Path) -> None:
    options = DeltaOptions(str(tmp_path / "table"))
    rows = [pa.table({"id": [number], "kind": ["a"]}) for number in range(4)]
    writers = [Writer(options, each.schema) for each in rows]
    written = [
        writer.files(each.to_batches()[0]) for writer, each in zip(writers, rows, strict=True)
    ]

    def commit(number: int) -> bool:
        return writers[number].commit(written[number], BatchIdentity(f"query {number}", 0))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(commit, range(4)))
    assert [each["id"] for each in stored_rows(options)] == [0, 1, 2, 3]


@pytest.mark.parametrize("exists", [False, True])
def test_two_drivers_of_a_query_add_a_batch_once(tmp_path: Path, exists: bool) -> None:
    options = DeltaOptions(str(tmp_path / "table"), merge_schema=True)
    if exists:
        write(options, FIRST)
    rows = pa.table({"id": [2], "more": [1]})
    writers = [Writer(options, rows.schema) for _ in range(3)]
    written = [writer.files(rows.to_batches()[0]) for writer in writers]

    def commit(number: int) -> bool:
        return writers[number].commit(written[number], BatchIdentity("query", 0))

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(commit, range(3))) == [False, False, True]
    assert [each["id"] for each in stored_rows(options)] == ([1, 2] if exists else [2])


def test_differences_name_nested_fields() -> None:
    old = [column("m", {"type": "map", "keyType": "string", "valueType": "integer",
                        "valueContainsNull": True})]  # fmt: skip
    new = [column("m", {"type": "map", "keyType": "string", "valueType": "long",
                        "valueContainsNull": True})]  # fmt: skip
    [text] = differences(new, old, may_miss=True)
    assert text.startswith("m.value is long in the rows and integer in the table")
    [text] = differences([column("m")], old, may_miss=True)
    assert text.startswith("m is long in the rows and map<string,integer> in the table")
