"""`barnabas tables`: what its commands print and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import write_deltalake

from barnabas.cli.spark.table_maintenance import tables
from spark.iceberg_tables import Writer, named

RECENT = ("--older-than", "0s", "--allow-recent")


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(tables, [str(each) for each in words])


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    for batch in range(3):
        write_deltalake(tmp_path / "delta", pa.table({"id": [batch]}), mode="append")
    return tmp_path / "delta"


@pytest.fixture
def iceberg(tmp_path: Path) -> tuple[str, ...]:
    """The words that name a table."""
    writer = Writer(named(tmp_path))
    for batch in range(3):
        writer.write(batch, batch=batch)
    return ("lake.flights", "-c", f"uri=sqlite:///{tmp_path}/catalog.db")


def test_the_state_of_a_delta_table(delta: Path) -> None:
    lines = run("status", delta).stdout.splitlines()
    assert lines[0] == "delta table, 3 rows"
    assert lines[1].startswith("3 files, ")
    assert lines[1].endswith(" bytes, 3 small files")
    assert lines[2].startswith("3 versions, the oldest of ")


@pytest.mark.parametrize("scheme", ["file://", "file:"])
def test_a_local_table_may_be_named_by_a_url(delta: Path, scheme: str) -> None:
    assert run("status", f"{scheme}{delta}").stdout == run("status", delta).stdout


def test_the_state_of_an_iceberg_table(iceberg: tuple[str, ...]) -> None:
    lines = run("status", *iceberg).stdout.splitlines()
    assert lines[0] == "iceberg table, 3 rows"
    assert lines[-1] == "query query: batch 2"
    found = json.loads(run("status", *iceberg, "--json").stdout)
    assert (found["rows"], found["files"], found["queries"]) == (3, 3, {"query": 2})


def test_a_compaction_says_how_many_files_it_replaced(
    delta: Path, iceberg: tuple[str, ...]
) -> None:
    for words in ((delta,), iceberg):
        assert run("compact", *words).stdout == "replaced 3 files by 1\n"
        assert run("compact", *words).stdout == "nothing to compact\n"
    found = json.loads(run("compact", *iceberg, "--json").stdout)
    assert found == {"removed_files": 0, "added_files": 0, "lost_files": 0, "skipped": {}}


def test_an_expiry_changes_nothing_without_execute(iceberg: tuple[str, ...]) -> None:
    run("compact", *iceberg)
    planned = run("expire", *iceberg, *RECENT)
    assert planned.stdout.startswith("would remove 3 snapshots and ")
    assert "use --execute" in planned.stderr
    assert len(json.loads(run("expire", *iceberg, *RECENT, "--json").stdout)["snapshots"]) == 3
    done = json.loads(run("expire", *iceberg, *RECENT, "--execute", "--json").stdout)
    assert done["executed"]
    assert run("expire", *iceberg, *RECENT).stdout == "would remove 0 files\n"


def test_an_expiry_of_a_delta_table_counts_files(delta: Path) -> None:
    run("compact", delta)
    assert run("expire", delta).stdout == "would remove 0 files\n"
    assert run("expire", delta, *RECENT, "--execute").stdout == "removed 3 files\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("expire", "/nowhere", "--older-than", "59m"), "at least 1h"),
        (("expire", "/nowhere", "--older-than", "soon"), "write milliseconds or an ISO time"),
        (("compact", "/nowhere", "--target-size", "big"), "write a size such as 128MiB"),
        (("status", "a.b", "-c", "uri"), "write KEY=VALUE"),
        (("status", "a.b", "--catalog", "x", "--storage", "a=b"), "--storage is for Delta"),
    ],
)
def test_wrong_usage_is_refused(words: tuple[str, ...], message: str) -> None:
    found = run(*words)
    assert found.exit_code == 2
    assert message in found.stderr


def test_a_missing_table_is_reported(tmp_path: Path) -> None:
    found = run("status", tmp_path)
    assert found.exit_code == 1
    assert "is no Delta table. For an Iceberg table, name its catalog" in found.stderr
    found = run("status", "lake.flights", "-c", f"uri=sqlite:///{tmp_path}/catalog.db")
    assert found.exit_code == 1
    assert "error: Table does not exist: lake.flights" in found.stderr


def test_wrong_properties_of_a_catalog_are_reported() -> None:
    found = run("status", "lake.flights", "--catalog", "nowhere")
    assert found.exit_code == 1
    assert found.stderr.startswith("error: ")
