"""Upserts into Delta tables where delta-rs has other rules than the tables of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from barnabas.spark.delta.columns import columns_of
from barnabas.spark.delta.merge import DeltaMerge
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.errors import DeltaTableError, MaintenanceError, MergeError
from barnabas.spark.tables.merge_options import MergeOptions
from spark.delta_tables import column, create_table, listing, stored_rows, write
from spark.merged_tables import MergedDelta, Row

BY_ID = MergeOptions(("id",))
# Only the last digit differs, and no binary floating-point number has these digits.
LONG = [Decimal(10**37 + 1), Decimal(10**37 + 2)]
LONG_TYPE = pa.decimal128(38, 0)


class GrowingDelta(MergedDelta):
    """A table with mergeSchema."""

    def _target(self) -> DeltaMerge:
        options = DeltaOptions(self.path, merge_schema=True)
        return DeltaMerge(options, self.merge, columns_of(self.stored))


def bounds(path: str) -> list[set[str]]:
    """The columns of which each file has a lowest value."""
    logs = sorted(Path(path, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return [set(json.loads(each["add"]["stats"])["minValues"]) for each in actions if "add" in each]


def test_decimal_keys_of_many_digits_are_found(tmp_path: Path) -> None:
    table = MergedDelta(tmp_path, pa.schema([("id", LONG_TYPE), ("v", pa.string())]), BY_ID)
    for text in ("old", "new"):
        for key in LONG:
            table.write([{"id": key, "v": text}])
    assert [each["v"] for each in table.rows()] == ["new", "new"]


def test_files_have_no_rounded_statistics_of_decimals(tmp_path: Path) -> None:
    inner = pa.struct([("decimal", LONG_TYPE)])
    schema = pa.schema(
        [("id", pa.int64()), ("long", LONG_TYPE), ("short", pa.decimal128(15, 2)), ("in", inner)]
    )
    table = MergedDelta(tmp_path, schema, BY_ID)
    for key, number in enumerate(LONG):
        value = {"long": number, "short": Decimal("0.10"), "in": {"decimal": number}}
        table.write([{"id": key, **value}])
    table.maintained.compact(2**27, lambda done, total: None)
    assert bounds(table.path) == [{"id", "short"}] * 3
    assert [each["long"] for each in table.rows()] == LONG


def test_partitions_of_decimals_are_not_spoiled(tmp_path: Path) -> None:
    number = pa.decimal128(10, 2)
    schema = pa.schema([("id", pa.int64()), ("part", number)])
    table = MergedDelta(tmp_path, schema, BY_ID, ("part",))
    row = {"id": 1, "part": Decimal("-1.50")}
    rows = pa.Table.from_pylist([row], schema)
    for _ in range(2):
        write(DeltaOptions(table.path, ("part",)), rows)
    before = listing(DeltaOptions(table.path))
    with pytest.raises(DeltaTableError, match="partitioned by the decimal part"):
        table.write([row])
    with pytest.raises(MaintenanceError, match="partitions of negative decimals"):
        table.maintained.compact(2**27, lambda done, total: None)
    after = listing(DeltaOptions(table.path))
    assert {each for each in after if "_barnabas_staging" not in each} == before


def test_partitions_of_positive_decimals_are_compacted(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("part", pa.decimal128(10, 2))])
    table = MergedDelta(tmp_path, schema, BY_ID, ("part",))
    rows = pa.Table.from_pylist([{"id": 1, "part": Decimal("1.50")}], schema)
    for _ in range(2):
        write(DeltaOptions(table.path, ("part",)), rows)
    assert table.maintained.compact(2**27, lambda done, total: None).added_files == 1
    assert [each["part"] for each in table.rows()] == [Decimal("1.50")] * 2


def test_the_empty_text_is_no_key_of_a_partition(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("region", pa.string())])
    table = MergedDelta(tmp_path, schema, MergeOptions(("id", "region")), ("region",))
    with pytest.raises(MergeError, match="region is the empty text in 1 rows"):
        table.write([{"id": 1, "region": ""}, {"id": 1, "region": "north"}])
    assert table.rows() == []


def test_the_empty_text_is_null_in_a_partition_of_merged_rows(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("region", pa.string())])
    table = MergedDelta(tmp_path, schema, BY_ID, ("region",))
    table.write([{"id": 1, "region": ""}, {"id": 2, "region": "north"}])
    table.write([{"id": 2, "region": ""}])
    logs = sorted(Path(table.path, "_delta_log").glob("*.json"))
    assert not [log for log in logs if '"partitionValues":{"region":""}' in log.read_text()]
    assert [each["region"] for each in table.rows()] == [None, None]


@pytest.fixture
def sparks_paths(tmp_path: Path) -> MergedDelta:
    """A table of two files whose partition is in their paths as Spark's Delta writes it."""
    schema = pa.schema([("id", pa.int64()), ("city", pa.string())])
    table = MergedDelta(tmp_path, schema, BY_ID, ("city",))
    for key in range(2):
        rows = pa.Table.from_pylist([{"id": key, "city": "Köln"}], schema)
        write(DeltaOptions(table.path, ("city",)), rows)
    Path(table.path, "city=K%C3%B6ln").rename(Path(table.path, "city=Köln"))
    for log in Path(table.path, "_delta_log").glob("*.json"):
        log.write_text(log.read_text().replace("city=K%25C3%25B6ln", "city=Köln"))
    return table


def merge(table: MergedDelta, row: Row) -> None:
    table.write([row])


def overwrite(table: MergedDelta, row: Row) -> None:
    write(DeltaOptions(table.path), pa.Table.from_pylist([row], table.schema), overwrite=True)


def compact(table: MergedDelta, row: Row) -> None:
    table.maintained.compact(2**27, lambda done, total: None)


@pytest.mark.parametrize("change", [merge, overwrite, compact])
def test_files_are_not_replaced_if_the_log_would_name_other_paths(
    sparks_paths: MergedDelta, change: Callable[[MergedDelta, Row], None]
) -> None:
    table, row = sparks_paths, {"id": 0, "city": "Bonn"}
    with pytest.raises((DeltaTableError, MaintenanceError), match="'city=Köln/part"):
        change(table, row)
    assert [each["id"] for each in table.rows()] == [0, 1]
    write(DeltaOptions(table.path), pa.Table.from_pylist([row], table.schema))
    assert [each["id"] for each in table.rows()] == [0, 0, 1]


NARROW = pa.struct([("a", pa.string())])
WIDE = pa.struct([("a", pa.string()), ("b", pa.int32())])
OTHER = pa.struct([("b", pa.int32())])


@pytest.mark.parametrize(
    ("old_type", "old", "new_type", "new", "stored"),
    [
        (WIDE, {"a": "x", "b": 1}, NARROW, {"a": "y"}, {"a": "y", "b": None}),
        (NARROW, {"a": "x"}, OTHER, {"b": 2}, {"a": None, "b": 2}),
        (pa.list_(WIDE), [{"a": "x", "b": 1}], pa.list_(NARROW), [{"a": "y"}],
         [{"a": "y", "b": None}]),
    ],
    ids=["fewer fields", "other fields", "elements with fewer fields"],
)  # fmt: skip
def test_fields_that_merged_rows_lack_become_null(
    tmp_path: Path, old_type: pa.DataType, old: Any, new_type: pa.DataType, new: Any, stored: Any
) -> None:
    for kind, value in ((old_type, old), (new_type, new)):
        table = GrowingDelta(tmp_path, pa.schema([("id", pa.int64()), ("value", kind)]), BY_ID)
        table.write([{"id": 1, "value": value}])
    assert table.rows() == [{"id": 1, "value": stored}]


@pytest.mark.parametrize(
    ("old_type", "old", "new_type", "new", "kept"),
    [
        (NARROW, {"a": "x"}, WIDE, {"a": "y", "b": 2}, {"a": "x", "b": None}),
        (pa.list_(NARROW), [{"a": "x"}], pa.list_(WIDE), [{"a": "y", "b": 2}],
         [{"a": "x", "b": None}]),
    ],
    ids=["struct", "array of structs"],
)  # fmt: skip
def test_rows_that_stay_keep_their_values_when_a_struct_gets_fields(
    tmp_path: Path, old_type: pa.DataType, old: Any, new_type: pa.DataType, new: Any, kept: Any
) -> None:
    """The MERGE of delta-rs, with its own change of columns, stores NULL instead."""
    for kind, rows in ((old_type, {1: old, 2: old}), (new_type, {1: new})):
        table = GrowingDelta(tmp_path, pa.schema([("id", pa.int64()), ("value", kind)]), BY_ID)
        table.write([{"id": key, "value": value} for key, value in rows.items()])
    assert table.rows() == [{"id": 1, "value": new}, {"id": 2, "value": kept}]


@pytest.mark.parametrize("text", ["AMOUNT > 0", 'name = "a"'])
def test_constraints_that_the_merge_cannot_check_are_refused(tmp_path: Path, text: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("name", pa.string())])
    row = {"id": 1, "amount": 1, "name": "a"}
    fields = [column("id"), column("amount"), column("name", "string")]
    options = create_table(
        tmp_path / "delta",
        fields,
        pa.Table.from_pylist([row], schema),
        protocol={"minReaderVersion": 1, "minWriterVersion": 3},
        properties={"delta.constraints.c": text},
    )
    wider = schema.append(pa.field("new", pa.int64()))
    table = GrowingDelta(tmp_path, wider, BY_ID)
    with pytest.raises(DeltaTableError, match="the MERGE of delta-rs cannot check it"):
        table.write([{**row, "new": 1}])
    assert DeltaTable(options.address).version() == 0
    assert stored_rows(options) == [row]


def test_names_with_a_backtick_are_quoted(tmp_path: Path) -> None:
    schema = pa.schema([("i`d", pa.int64()), ("v", pa.string())])
    table = MergedDelta(tmp_path, schema, MergeOptions(("i`d",)))
    for text in ("old", "new"):
        table.write([{"i`d": 1, "v": text}])
    assert table.rows() == [{"i`d": 1, "v": "new"}]
