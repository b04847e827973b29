"""Compaction and expiry of Iceberg tables, with other writers between their steps."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.types import StringType

from barnabas.spark.errors import MaintenanceError
from barnabas.spark.iceberg.catalog import TableName, open_table
from barnabas.spark.iceberg.commit import last_batch
from barnabas.spark.iceberg.maintenance import MaintainedIceberg, compact
from barnabas.spark.tables.maintenance import Compaction
from spark.iceberg_deletes import delete_equal, delete_positions
from spark.iceberg_tables import Writer, live_files, named, now_ms, rows, stored_files

TARGET = 128 << 20


def quiet(_done: int, _total: int) -> None:
    """Progress that is not shown."""


@pytest.fixture
def name(tmp_path: Path) -> TableName:
    return named(tmp_path)


def test_small_files_of_a_partition_become_one(name: TableName) -> None:
    writer = Writer(name, partition_by=("kind",))
    for batch in range(4):
        writer.write(*range(batch * 20, batch * 20 + 20), batch=batch)
    steps: list[tuple[int, int]] = []
    done = compact(name, TARGET, lambda *step: steps.append(step))
    assert done == Compaction(removed_files=40, added_files=10)
    assert steps[0] == (0, 40)
    assert steps[-1] == (40, 40)
    assert rows(name) == list(range(80))
    assert len(live_files(open_table(name))) == 10
    found = open_table(name).scan(EqualTo("kind", "kind 3")).to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(3, 80, 10))
    assert compact(name, TARGET, quiet) == Compaction()


def test_full_files_stay(name: TableName) -> None:
    writer = Writer(name)
    for batch in range(4):
        writer.write(batch, batch=batch)
    size = next(task.file.file_size_in_bytes for task in open_table(name).scan().plan_files())
    assert compact(name, size, quiet) == Compaction()
    assert compact(name, 2 * size, quiet) == Compaction(removed_files=4, added_files=2)


def test_batches_that_are_committed_during_a_compaction_stay(name: TableName) -> None:
    writer = Writer(name)
    for batch in range(3):
        writer.write(batch, batch=batch)

    def meanwhile(done: int, _total: int) -> None:
        if not done:
            writer.write(3, batch=3)

    assert compact(name, TARGET, meanwhile) == Compaction(removed_files=3, added_files=1)
    assert rows(name) == [0, 1, 2, 3]
    assert last_batch(open_table(name), "query") == 3
    assert not writer.write(3, batch=3)


def test_a_compaction_gives_up_files_that_another_writer_replaced(
    name: TableName, tmp_path: Path
) -> None:
    writer = Writer(name)
    for batch in range(3):
        writer.write(batch, batch=batch)

    def meanwhile(done: int, _total: int) -> None:
        if not done:
            writer.write(7, batch=3, overwrite=True)

    before = stored_files(tmp_path)
    assert compact(name, TARGET, meanwhile) == Compaction(lost_files=3)
    assert rows(name) == [7]
    assert len(stored_files(tmp_path) - before) == 1, "the compaction's file is left behind"


def test_new_columns_are_null_in_rewritten_rows(name: TableName) -> None:
    writer = Writer(name)
    writer.write(1, batch=0)
    with open_table(name).update_schema() as update:
        update.add_column("more", StringType())
        update.rename_column("kind", "sort")
    with pytest.raises(RuntimeError, match="was changed while"):
        writer.write(2, batch=1)
    open_table(name).append(pa.table({"id": [2], "sort": ["kind 2"], "more": ["x"]}))
    assert compact(name, TARGET, quiet).removed_files == 2
    found = sorted(open_table(name).scan().to_arrow().to_pylist(), key=lambda each: each["id"])
    assert found == [
        {"id": 1, "sort": "kind 1", "more": None},
        {"id": 2, "sort": "kind 2", "more": "x"},
    ]


def test_an_expiry_removes_old_snapshots_and_unnamed_files(name: TableName, tmp_path: Path) -> None:
    writer = Writer(name)
    for batch in range(3):
        writer.write(batch, batch=batch)
    compact(name, TARGET, quiet)
    [left] = writer.files(9)
    maintained = MaintainedIceberg(name)
    assert maintained.status(TARGET).snapshots == 4
    planned = maintained.expire(now_ms(), execute=False, progress=quiet)
    assert len(planned.snapshots) == 3
    assert left.file_path in planned.files
    assert maintained.status(TARGET).snapshots == 4
    assert maintained.expire(now_ms(), execute=True, progress=quiet) == planned
    assert maintained.status(TARGET).snapshots == 1
    assert len(stored_files(tmp_path)) == 1
    assert rows(name) == [0, 1, 2]
    assert not maintained.expire(now_ms(), execute=True, progress=quiet).files


def test_an_expiry_leaves_young_files_and_those_of_tags(name: TableName, tmp_path: Path) -> None:
    writer = Writer(name)
    writer.write(1, batch=0)
    table = open_table(name)
    current = table.metadata.current_snapshot_id
    assert current is not None
    table.manage_snapshots().create_tag(current, "kept").commit()
    writer.write(2, batch=1, overwrite=True)
    old, young = writer.files(8), writer.files(9)
    hour_ago = now_ms() - 3_600_000
    os.utime(old[0].file_path, (0, 0))
    maintained = MaintainedIceberg(name)
    assert maintained.expire(hour_ago, execute=True, progress=quiet).files == (old[0].file_path,)
    assert Path(young[0].file_path).name in stored_files(tmp_path)
    maintained.expire(now_ms(), execute=True, progress=quiet)
    assert open_table(name).scan(snapshot_id=current).to_arrow()["id"].to_pylist() == [1]


def test_the_status_counts_rows_files_and_batches(name: TableName) -> None:
    writer = Writer(name)
    for batch in range(3):
        writer.write(batch, batch, batch=batch)
    found = MaintainedIceberg(name).status(TARGET)
    assert (found.kind, found.rows, found.files, found.small_files) == ("iceberg", 6, 3, 3)
    assert (found.snapshots, found.queries) == (3, {"query": 2})


def test_deleted_rows_do_not_count(name: TableName) -> None:
    writer = Writer(name)
    for batch in range(2):
        writer.write(*range(batch * 10, batch * 10 + 10), batch=batch)
    first, second = live_files(open_table(name))
    delete_positions(name, [(first, 0), (first, 3), (second, 9)])
    # A row that is deleted twice, and one of a file that the table does not have.
    delete_positions(name, [(first, 3), (f"{first}.old", 1)])
    found = MaintainedIceberg(name).status(TARGET)
    assert (found.rows, found.files) == (17, 2)
    assert len(rows(name)) == 17
    done = compact(name, TARGET, quiet)
    assert done == Compaction(skipped={"has deleted rows": 2})


def test_deletes_that_pyiceberg_cannot_apply_are_named(name: TableName) -> None:
    Writer(name).write(1, 2)
    delete_equal(name, "id", [1])
    maintained = MaintainedIceberg(name)
    for command in (lambda: maintained.status(TARGET), lambda: maintained.compact(TARGET, quiet)):
        with pytest.raises(MaintenanceError, match=r"lake\.flights has equality deletes"):
            command()
