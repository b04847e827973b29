"""The demo's proof detects a table that differs from the data set."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from examples.flights import proof

KEYS = {"hour": pd.Timestamp("2013-01-01T10:00Z"), "origin": "EWR"}


def table(**changes: object) -> pd.DataFrame:
    first = {**KEYS, "flights": 3, "delay_minutes": 4.5, "latest_airline": "United", **changes}
    second = {**first, "origin": "JFK", "delay_minutes": float("nan")}
    return pd.DataFrame([first, second])


def test_the_same_table_has_no_differences() -> None:
    assert proof.differences(table(), table()) == []


@pytest.mark.parametrize(
    "changed",
    [table(flights=4), table(delay_minutes=4.6), table(latest_airline="Delta")],
    ids=["a count", "a sum", "a name"],
)
def test_another_value_is_found(changed: pd.DataFrame) -> None:
    [problem] = proof.differences(changed, table())
    assert "differs" in problem


def test_a_row_that_is_missing_unexpected_or_twice_is_found() -> None:
    assert "missing" in proof.differences(table()[:1], table())[0]
    assert "unexpected" in proof.differences(table(), table()[:1])[0]
    assert "more than once" in proof.differences(pd.concat([table(), table()]), table())[0]


def test_only_files_of_the_manifest_belong_to_the_table(tmp_path: Path) -> None:
    manifest = tmp_path / "_spark_metadata"
    manifest.mkdir()

    def log(name: str, *files: str) -> None:
        lines = [json.dumps({"path": f"file:///elsewhere/{f}", "action": "add"}) for f in files]
        (manifest / name).write_text("\n".join(["v1", *lines]))

    log("8", "a.parquet")
    log("9.compact", "a.parquet", "b.parquet")
    log("10", "c.parquet")
    (tmp_path / "left-behind.parquet").touch()
    names = [path.name for path in proof.table_files(tmp_path)]
    assert names == ["a.parquet", "b.parquet", "c.parquet"]


def test_the_direct_computation_counts_every_flight_once() -> None:
    hours = proof.expected_hours()
    assert hours["flights"].sum() == 336_776
    assert not hours.duplicated(["hour", "origin"]).any()
