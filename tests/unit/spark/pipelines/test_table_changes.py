"""Tables that are gone, and columns of other types, are found before a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from barnabas.spark.pipelines.changes import (
    Change,
    StoredTable,
    find_state_changes,
    find_table_changes,
)
from barnabas.spark.pipelines.checkpoints import Checkpoint
from barnabas.spark.pipelines.definition import FlowDefinition, StatefulOperator, StreamSource
from unit.spark.safe_advice import assert_safe

RECORDS = FlowDefinition("c.d.records", "records", (StreamSource("barnabas", {"subscribe": "t"}),))
ALERTS = FlowDefinition(
    "alerts",
    "to_topic",
    (StreamSource("table", {"name": "records"}),),
    sink=StreamSource("barnabas", {"topic": "alerts"}),
)
GONE = StoredTable("the files of c.d.records are gone")


def changes(
    stored: StoredTable, columns: dict[str, Any], committed: int = 3, flow: FlowDefinition = RECORDS
) -> list[Change]:
    checkpoint = Checkpoint(flow.target, flow.flow, Path("/p"), "q", committed, committed)
    found = list(find_table_changes(flow, (RECORDS, ALERTS), checkpoint, stored, columns))
    for change in found:
        assert_safe(change.remedy)
    return found


def test_a_table_that_is_gone_is_refused_with_the_cost_of_a_reset() -> None:
    (change,) = changes(GONE, {})
    assert change.is_refused
    assert "its checkpoint is at batch 3. A new table would lack all rows" in change.problem
    assert change.remedy.startswith("bring records back")
    assert "alerts gets all its rows a second time" in change.remedy


def test_a_table_that_no_batch_has_filled_may_be_missing() -> None:
    assert changes(GONE, {}, committed=-1) == []


def test_a_table_of_a_sink_that_is_gone_is_refused() -> None:
    (change,) = changes(StoredTable("there is no Delta table in /lake"), {}, flow=ALERTS)
    assert "A new target would lack all rows" in change.problem
    assert "writes all rows to alerts again" in change.remedy


TEXT, NUMBER, LONG = StringType(), IntegerType(), LongType()


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (TEXT, NUMBER),
        (NUMBER, LONG),
        (ArrayType(TEXT), ArrayType(NUMBER)),
        (MapType(TEXT, TEXT), MapType(TEXT, NUMBER)),
        (StructType().add("a", TEXT), StructType().add("a", NUMBER)),
        (DecimalType(10, 2), DecimalType(10, 3)),
    ],
    ids=lambda type_: type_.simpleString(),
)
def test_another_type_of_a_column_is_refused(before: DataType, now: DataType) -> None:
    (change,) = changes(StoredTable(columns={"value": before}), {"value": now})
    assert change.is_refused
    assert change.problem == (
        f"its column value is {now.simpleString()} now, and {before.simpleString()} in records"
    )
    assert change.remedy.startswith(f"cast value to {before.simpleString()}")


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (TEXT, TEXT),
        (ArrayType(TEXT), ArrayType(TEXT, containsNull=False)),
        (StructType().add("a", TEXT), StructType().add("a", TEXT).add("b", NUMBER)),
        (DecimalType(10, 2), DecimalType(12, 2)),
    ],
    ids=lambda type_: type_.simpleString(),
)
def test_a_type_that_spark_merges_is_no_change(before: DataType, now: DataType) -> None:
    assert changes(StoredTable(columns={"value": before}), {"value": now}) == []


def test_new_columns_and_columns_that_are_gone_are_no_change() -> None:
    assert changes(StoredTable(columns={"value": TEXT}), {"length": NUMBER}) == []


def test_another_type_in_the_state_of_a_flow_into_a_sink_is_refused() -> None:
    state = (StatefulOperator("aggregation", "1"),)
    before = replace(ALERTS, operators=state, columns={"key": "string", "n": "bigint"})
    now = replace(before, columns={"key": "int", "n": "bigint"})
    (change,) = find_state_changes(now, (now,), before)
    assert change.problem == "its column key is int now, and was string when its state was made"
    assert_safe(change.remedy)
    assert list(find_state_changes(replace(now, operators=()), (now,), before)) == []
    # Notes of earlier runs have no types.
    assert list(find_state_changes(now, (now,), replace(before, columns={}))) == []
