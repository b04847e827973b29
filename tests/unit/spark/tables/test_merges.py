"""Batches that insert, update and delete rows of Delta and Iceberg tables by their keys."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from barnabas.spark.errors import MergeError
from barnabas.spark.tables.merge_options import DELETED, MergeOptions
from spark.iceberg_tables import stored_files
from spark.merged_tables import MERGED_KINDS, MergedTable, Row

SCHEMA = pa.schema(
    [("id", pa.int64()), ("region", pa.string()), ("value", pa.string()), ("seq", pa.int64()),
     ("op", pa.string())]
)  # fmt: skip
BY_ID = MergeOptions(("id",), "seq", "op = 'd'", ("op",))


@pytest.fixture(params=MERGED_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def row(key: int, seq: int, op: str = "u", region: str = "north", value: str | None = None) -> Row:
    text = f"{key} at {seq}" if value is None else value
    return {"id": key, "region": region, "value": text, "seq": seq, "op": op}


def values(table: MergedTable) -> dict[Any, Any]:
    found = table.rows()
    assert len({each["id"] for each in found}) == len(found)
    return {each["id"]: each["value"] for each in found}


@pytest.fixture
def table(kind: str, tmp_path: Path) -> MergedTable:
    return MERGED_KINDS[kind](tmp_path, SCHEMA, BY_ID)


def test_rows_are_inserted_updated_and_deleted(table: MergedTable) -> None:
    table.write([row(1, 1), row(2, 1)], [row(3, 1)], batch=0)
    table.write([row(1, 2), row(2, 2, "d"), row(4, 2)], batch=1)
    assert values(table) == {1: "1 at 2", 3: "3 at 1", 4: "4 at 2"}
    assert "op" not in table.arrow().column_names


def test_the_row_with_the_highest_sequence_wins_within_a_batch(table: MergedTable) -> None:
    table.write([row(1, 3), row(1, 1)], [row(1, 2, "d"), row(2, 5, "d"), row(2, 4)], batch=0)
    assert values(table) == {1: "1 at 3"}


def test_late_rows_and_late_deletions_change_nothing(table: MergedTable) -> None:
    table.write([row(1, 5), row(2, 5)], batch=0)
    table.write([row(1, 4), row(2, 4, "d")], batch=1)
    assert values(table) == {1: "1 at 5", 2: "2 at 5"}


def test_a_row_with_the_same_sequence_as_the_tables_row_wins(table: MergedTable) -> None:
    table.write([row(1, 5), row(2, 5)], batch=0)
    table.write([row(1, 5, value="new"), row(2, 5, "d")], batch=1)
    assert values(table) == {1: "new"}


def test_the_table_forgets_the_sequence_of_a_deleted_key(table: MergedTable) -> None:
    """A stored column instead of a deletion keeps it: see the next test."""
    table.write([row(1, 1)], batch=0)
    table.write([row(1, 5, "d")], batch=1)
    table.write([row(1, 4)], batch=2)
    assert values(table) == {1: "1 at 4"}


def test_late_rows_lose_against_deletions_that_are_stored_as_rows(
    kind: str, tmp_path: Path
) -> None:
    table = MERGED_KINDS[kind](tmp_path, SCHEMA, MergeOptions(("id",), "seq"))
    table.write([row(1, 1)], batch=0)
    table.write([row(1, 5, "d")], batch=1)
    table.write([row(1, 4)], batch=2)
    assert [each["op"] for each in table.rows()] == ["d"]


def test_a_sequence_that_is_not_stored_counts_within_a_batch(kind: str, tmp_path: Path) -> None:
    merge = MergeOptions(("id",), "seq", "op = 'd'", ("op", "seq"))
    table = MERGED_KINDS[kind](tmp_path, SCHEMA, merge)
    table.write([row(1, 5), row(1, 6)], batch=0)
    assert values(table) == {1: "1 at 6"}
    table.write([row(1, 4)], batch=1)
    assert values(table) == {1: "1 at 4"}
    assert table.arrow().column_names == ["id", "region", "value"]


def test_a_batch_is_merged_once(table: MergedTable) -> None:
    table.write([row(1, 1)], batch=0)
    table.write([row(1, 2, "d"), row(2, 2)], batch=1)
    # Another query brings the key back; the repeated batch may not delete it again.
    table.write([row(1, 1, value="another")], batch=0, query="another query")
    table.write([row(1, 2, "d"), row(2, 2)], batch=1)
    assert values(table) == {1: "another", 2: "2 at 2"}


def test_a_batch_that_changes_nothing_is_known_too(table: MergedTable) -> None:
    table.write([row(1, 5)], batch=0)
    table.write([row(1, 4), row(2, 1, "d")], batch=1)
    table.write([row(2, 1)], batch=0, query="another query")
    table.write([row(1, 4), row(2, 1, "d")], batch=1)
    assert values(table) == {1: "1 at 5", 2: "2 at 1"}


def test_a_checkpoint_older_than_the_table_is_refused(table: MergedTable) -> None:
    for batch in range(2):
        table.write([row(batch, 1)], batch=batch)
    with pytest.raises(RuntimeError, match=r"has batch 1 .* the checkpoint is at batch 0"):
        table.write([row(9, 1)], batch=0)
    assert values(table) == {0: "0 at 1", 1: "1 at 1"}


def test_several_columns_are_a_key(kind: str, tmp_path: Path) -> None:
    merge = MergeOptions(("id", "region"), "seq", "op = 'd'", ("op",))
    table = MERGED_KINDS[kind](tmp_path, SCHEMA, merge, ("region",))
    table.write([row(1, 1), row(1, 1, region="south"), row(2, 1)], batch=0)
    table.write([row(1, 2, region="south"), row(2, 2, "d"), row(3, 2, region="a'b/ü")], batch=1)
    found = [(each["id"], each["region"], each["seq"]) for each in table.rows()]
    assert found == [(1, "north", 1), (1, "south", 2), (3, "a'b/ü", 2)]


def test_a_row_moves_to_another_partition(kind: str, tmp_path: Path) -> None:
    table = MERGED_KINDS[kind](tmp_path, SCHEMA, BY_ID, ("region",))
    table.write([row(1, 1), row(2, 1)], batch=0)
    table.write([row(1, 2, region="south")], batch=1)
    assert [(each["id"], each["region"]) for each in table.rows()] == [(1, "south"), (2, "north")]


@pytest.mark.parametrize(
    ("type_", "first", "second"),
    [
        (pa.string(), "it's", "ö" * 100),
        (pa.date32(), dt.date(1969, 1, 1), dt.date(2026, 1, 1)),
        (pa.timestamp("us", "UTC"), dt.datetime(2026, 1, 1, 1, 1, 1, 123456, dt.UTC),
         dt.datetime(2026, 1, 1, 1, 1, 1, 123457, dt.UTC)),
        (pa.decimal128(10, 2), "1.20", "1.21"),
        (pa.int32(), -5, 7),
        (pa.bool_(), False, True),
        (pa.binary(), b"\0\xff", b"\0"),
    ],
    ids=str,
)  # fmt: skip
def test_keys_of_each_type_are_found(
    kind: str, tmp_path: Path, type_: pa.DataType, first: Any, second: Any
) -> None:
    schema = pa.schema([("key", type_), ("A value", pa.string())])
    keys = pa.array([first, second]).cast(type_).to_pylist()
    table = MERGED_KINDS[kind](tmp_path, schema, MergeOptions(("key",)))
    table.write([{"key": key, "A value": "old"} for key in keys], batch=0)
    table.write([{"key": keys[0], "A value": "new"}], batch=1)
    found = {each["key"]: each["A value"] for each in table.rows()}
    assert found == {keys[0]: "new", keys[1]: "old"}


def test_nested_columns_are_updated(kind: str, tmp_path: Path) -> None:
    kind_of_value = pa.struct([("list", pa.list_(pa.int32())), ("text", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("value", kind_of_value), ("n", pa.float64())])
    table = MERGED_KINDS[kind](tmp_path, schema, MergeOptions(("id",)))
    table.write([{"id": n, "value": {"list": [n], "text": "a"}, "n": None} for n in (1, 2)])
    new = {"list": [5, None], "text": None}
    table.write([{"id": 1, "value": new, "n": 0.5}])
    assert table.rows()[0] == {"id": 1, "value": new, "n": 0.5}
    assert table.rows()[1]["value"] == {"list": [2], "text": "a"}


def test_a_deletion_needs_no_values_in_required_columns(kind: str, tmp_path: Path) -> None:
    table = MERGED_KINDS[kind](tmp_path, SCHEMA, BY_ID)
    table.write([row(1, 1), row(2, 1)], batch=0)
    table.require("region")
    table.write([row(1, 2, "d") | {"region": None, "value": None}], batch=1)
    assert values(table) == {2: "2 at 1"}
    with pytest.raises(Exception, match="region"):
        table.write([row(2, 2) | {"region": None}], batch=2)


def test_equal_rows_of_a_key_count_once(kind: str, tmp_path: Path) -> None:
    table = MERGED_KINDS[kind](tmp_path, SCHEMA, MergeOptions(("id",)))
    table.write([row(1, 1), row(1, 1)], [row(1, 1)], batch=0)
    assert values(table) == {1: "1 at 1"}


def test_different_rows_of_a_key_are_refused_without_a_sequence(kind: str, tmp_path: Path) -> None:
    table = MERGED_KINDS[kind](tmp_path, SCHEMA, MergeOptions(("id",)))
    with pytest.raises(MergeError, match=r"different rows of the key id=1: set sequenceColumn"):
        table.write([row(1, 1), row(1, 2)], batch=0)
    assert table.rows() == []


def test_only_rows_with_the_highest_sequence_must_not_differ(table: MergedTable) -> None:
    table.write([row(1, 1, value="a"), row(1, 1, value="b"), row(1, 2)], batch=0)
    table.write([row(2, 1, "d", value="a"), row(2, 1, "d", value="b")], batch=1)
    assert values(table) == {1: "1 at 2"}
    with pytest.raises(MergeError, match=r"of the key id=3 with the same seq=7"):
        table.write([row(3, 7, value="a"), row(3, 7, value="b"), row(3, 6)], batch=2)


@pytest.mark.parametrize(("column", "option"), [("id", "mergeKeys"), ("seq", "sequenceColumn")])
def test_null_keys_and_sequences_are_refused(table: MergedTable, column: str, option: str) -> None:
    with pytest.raises(MergeError, match=f"{column} is NULL in 1 rows, and {option} names it"):
        table.write([row(1, 1), row(2, 2) | {column: None}], batch=0)
    assert table.rows() == []
    assert not [each for each in stored_files(table.directory) if each.startswith("query-")]


def test_nan_is_no_sequence(kind: str, tmp_path: Path) -> None:
    """Libraries order NaN differently, and two rows with NaN have no order at all."""
    schema = pa.schema([("id", pa.int64()), ("seq", pa.float64())])
    table = MERGED_KINDS[kind](tmp_path, schema, MergeOptions(("id",), "seq"))
    with pytest.raises(MergeError, match="seq is NaN in 1 rows, and sequenceColumn names it"):
        table.write([{"id": 1, "seq": 1.0}, {"id": 1, "seq": float("nan")}])
    assert table.rows() == []


@pytest.mark.parametrize("type_", [pa.date32(), pa.timestamp("us", "UTC")], ids=str)
def test_keys_after_the_year_9999_are_found(kind: str, tmp_path: Path, type_: pa.DataType) -> None:
    """Python has no such dates, so rows are made and counted without them."""
    far = pa.scalar(3_000_000).cast(pa.int32()).cast(pa.date32())
    schema = pa.schema([("key", type_), ("value", pa.int64())])
    table = MERGED_KINDS[kind](tmp_path, schema, MergeOptions(("key",)))
    for value in (1, 2):
        columns = [pa.array([far]).cast(pa.timestamp("us")).cast(type_), pa.array([value])]
        rows = pa.table(columns, schema=schema).append_column(DELETED, pa.array([False]))
        table.target.merge_rows(rows, None)
    assert table.maintained.status(1).rows == 1


@settings(max_examples=12)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 5), st.sampled_from("ab"), st.integers(0, 9), st.sampled_from("ud")
            ),
            max_size=8,
        ),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
    st.booleans(),
    st.data(),
)
@pytest.mark.parametrize("kind", MERGED_KINDS)
def test_a_table_equals_a_dictionary_after_random_batches(
    kind: str,
    batches: list[list[tuple[int, str, int, str]]],
    is_partitioned: bool,
    has_region_key: bool,
    data: st.DataObject,
) -> None:
    """Inserts, updates, late rows, deletions, several rows of a key, and repeated batches."""
    keys = ("id", "region") if has_region_key else ("id",)
    merge = MergeOptions(keys, "seq", "op = 'd'", ("op",))
    model: dict[tuple[Any, ...], Row] = {}
    with TemporaryDirectory() as directory:
        partition_by = ("region",) if is_partitioned else ()
        table = MERGED_KINDS[kind](Path(directory), SCHEMA, merge, partition_by)
        for number, changes in enumerate(batches):
            # One row for each key and sequence: others are refused.
            rows = {
                (*(dict(zip(("id", "region"), each[:2], strict=True))[k] for k in keys), each[2]):
                row(each[0], each[2], each[3], each[1])
                for each in changes
            }  # fmt: skip
            tasks: tuple[list[Row], list[Row]] = ([], [])
            for each in rows.values():
                tasks[data.draw(st.integers(0, 1))].append(each)
            for _ in range(data.draw(st.integers(1, 2))):
                table.write(*(task for task in tasks if task), batch=number)
            apply(model, list(rows.values()), keys)
            assert table.rows() == sorted(
                model.values(), key=lambda each: [repr(each[name]) for name in keys]
            )


def apply(model: dict[tuple[Any, ...], Row], rows: list[Row], keys: tuple[str, ...]) -> None:
    """Merge a batch into a dictionary."""
    latest: dict[tuple[Any, ...], Row] = {}
    for each in sorted(rows, key=lambda one: one["seq"]):
        latest[tuple(each[name] for name in keys)] = each
    for key, each in latest.items():
        if key in model and model[key]["seq"] > each["seq"]:
            continue
        model.pop(key, None)
        if each["op"] != "d":
            model[key] = {name: value for name, value in each.items() if name != "op"}


def test_null_lists_and_maps_of_other_rows_stay(kind: str, tmp_path: Path) -> None:
    field = pa.struct([("x", pa.int64())])
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("seq", pa.int64()),
            ("list", pa.list_(field)),
            ("map", pa.map_(pa.string(), field)),
            ("inner", pa.struct([("list", pa.list_(field))])),
        ]
    )
    table = MERGED_KINDS[kind](tmp_path, schema, MergeOptions(("id",), "seq"))
    nothing = {"list": None, "map": None, "inner": {"list": None}}
    empty: Row = {"list": [], "map": [], "inner": {"list": []}}
    filled = {"list": [{"x": 1}], "map": [("a", {"x": 1})], "inner": {"list": [None]}}
    old: list[Row] = [
        {"id": key, "seq": 1, **each} for key, each in enumerate([nothing, empty, filled, nothing])
    ]
    table.write(old, batch=0)
    new: Row = {"id": 3, "seq": 2, **empty}
    table.write([new], batch=1)
    assert table.rows() == [*old[:3], new]
