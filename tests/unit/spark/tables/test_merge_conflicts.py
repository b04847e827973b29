"""Merges beside other writers and maintenance, on tables with constraints and many files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema

from barnabas.spark.delta.columns import columns_of
from barnabas.spark.delta.merge import DeltaMerge
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.errors import DeltaTableError
from barnabas.spark.iceberg.catalog import open_table
from barnabas.spark.iceberg.merge import FILES_READ
from barnabas.spark.tables.commits import BatchIdentity
from barnabas.spark.tables.merge_options import DELETED, MergeOptions
from spark.iceberg_tables import live_files, named, now_ms, stored_files
from spark.merged_tables import MERGED_KINDS, MergedDelta, MergedIceberg, MergedTable, Row

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64()), ("seq", pa.int64())])
TARGET = 128 << 20
THREADS, BATCHES = 3, 4


def quiet(_done: int, _total: int) -> None:
    """Progress that is not shown."""


def rows(*ids: int, seq: int = 1) -> list[Row]:
    return [{"id": each, "part": each // 10, "seq": seq} for each in ids]


@pytest.fixture(params=MERGED_KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> MergedTable:
    return MERGED_KINDS[request.param](tmp_path, SCHEMA, MergeOptions(("id",), "seq"))


def test_no_batch_is_lost_or_applied_twice_beside_writers_and_compactions(
    table: MergedTable,
) -> None:
    table.write(rows(*range(THREADS)), batch=0, query="first")

    def merge(number: int) -> None:
        for batch in range(BATCHES):
            new = 100 * (number + 1) + batch
            table.write(rows(number, new, seq=batch + 2), batch=batch, query=f"query {number}")

    def compact(_: int) -> None:
        for _ in range(3):
            table.maintained.compact(TARGET, quiet)

    with ThreadPoolExecutor(THREADS + 1) as pool:
        running = [pool.submit(merge, number) for number in range(THREADS)]
        running.append(pool.submit(compact, 0))
        for each in running:
            each.result()
    expected = rows(*range(THREADS), seq=BATCHES + 1)
    for number in range(THREADS):
        for batch in range(BATCHES):
            expected += rows(100 * (number + 1) + batch, seq=batch + 2)
    assert sorted(table.rows(), key=lambda row: row["id"]) == expected


def test_two_drivers_of_a_query_merge_a_batch_once(table: MergedTable) -> None:
    latest = table.latest(rows(1, 2))

    def merge(_: int) -> None:
        table.target.merge_rows(latest, BatchIdentity("query", 0))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(merge, range(3)))
    assert table.rows() == rows(1, 2)


def test_a_merge_goes_on_after_a_compaction(table: MergedTable) -> None:
    for batch in range(4):
        table.write(rows(batch), batch=batch)
    assert table.maintained.compact(TARGET, quiet).removed_files == 4
    table.write(rows(1, seq=2), batch=4)
    assert table.rows() == [*rows(0), *rows(1, seq=2), *rows(2, 3)]


def test_an_expiry_removes_old_staged_rows_and_nothing_else(table: MergedTable) -> None:
    table.write(rows(1), batch=0)
    storage, [path] = table.target.open_storage(), table.stage(rows(2))
    for name in stored_files(table.directory):
        for file in table.directory.rglob(name):
            # Everything looks old.
            os.utime(file, (0, 0))
    found = table.maintained.expire(now_ms() - 2 * 3_600_000, execute=False, progress=quiet)
    assert any("_barnabas_staging" in each for each in found.files)
    table.maintained.expire(now_ms() - 2 * 3_600_000, execute=True, progress=quiet)
    with pytest.raises(FileNotFoundError):
        storage.open_input_file(path)
    assert table.rows() == rows(1)


def test_a_young_staged_file_survives_an_expiry(table: MergedTable) -> None:
    table.write(rows(1), batch=0)
    storage, [path] = table.target.open_storage(), table.stage(rows(2))
    table.maintained.expire(now_ms() - 2 * 3_600_000, execute=True, progress=quiet)
    storage.open_input_file(path).close()


@pytest.mark.parametrize("term", ["bucket(4, id)", "truncate(7, id)", "part"])
def test_rows_of_iceberg_partitions_by_transforms_are_merged(tmp_path: Path, term: str) -> None:
    table = MergedIceberg(tmp_path, SCHEMA, MergeOptions(("id",), "seq"), (term,))
    table.write(rows(*range(40)), batch=0)
    table.write(rows(*range(30, 50), seq=2), rows(1, seq=0), batch=1)
    assert table.rows() == sorted(
        rows(*range(30)) + rows(*range(30, 50), seq=2), key=lambda row: repr(row["id"])
    )


class TestDelta:
    """What only Delta tables have."""

    def test_rows_that_break_a_constraint_are_refused(self, tmp_path: Path) -> None:
        table = MergedDelta(tmp_path, SCHEMA, MergeOptions(("id",), "seq"))
        table.write(rows(1), batch=0)
        DeltaTable(table.path).alter.add_constraint({"positive": "seq > 0"})
        with pytest.raises(DeltaTableError, match=r"2 of 3 rows .* CHECK constraint positive"):
            table.write(rows(1, 2, seq=-5), [{"id": 3, "part": 0, "seq": 9}], batch=1)
        assert table.rows() == rows(1)

    def test_null_in_a_column_that_is_not_null_is_refused(self, tmp_path: Path) -> None:
        table = MergedDelta(tmp_path, SCHEMA, MergeOptions(("id",), "seq"))
        schema = pa.schema([SCHEMA.field("id"), pa.field("part", pa.int64(), False), SCHEMA[2]])
        DeltaTable.create(table.path, schema)
        table.write(rows(1), batch=0)
        with pytest.raises(DeltaTableError, match="part is NOT NULL"):
            table.write([{"id": 1, "part": None, "seq": 2}], batch=1)
        assert table.rows() == rows(1)

    def test_a_table_with_a_generated_column_is_refused(self, tmp_path: Path) -> None:
        table = MergedDelta(tmp_path, SCHEMA, MergeOptions(("id",), "seq"))
        rule = {"delta.generationExpression": "id * 2"}
        columns = [Field("id", "long"), Field("part", "long", metadata=rule), Field("seq", "long")]
        DeltaTable.create(table.path, Schema(columns))
        with pytest.raises(DeltaTableError, match=r"generatedColumns \(of part\)"):
            table.write([{"id": 1, "part": 2, "seq": 1}], batch=0)

    def test_a_table_that_only_takes_new_rows_is_refused(self, tmp_path: Path) -> None:
        table = MergedDelta(tmp_path, SCHEMA, MergeOptions(("id",), "seq"))
        DeltaTable.create(table.path, SCHEMA, configuration={"delta.appendOnly": "true"})
        with pytest.raises(DeltaTableError, match="appendOnly"):
            table.write(rows(1), batch=0)

    def test_merge_schema_adds_a_column(self, tmp_path: Path) -> None:
        table = MergedDelta(tmp_path, SCHEMA, MergeOptions(("id",), "seq"))
        table.write(rows(1, 2), batch=0)
        wider = SCHEMA.append(pa.field("kind", pa.string()))
        options = DeltaOptions(table.path, merge_schema=True)
        new = [{"id": 2, "part": 0, "seq": 2, "kind": "x"}, {"id": 3, "part": 0, "seq": 2}]
        target = DeltaMerge(options, table.merge, columns_of(wider))
        marked = pa.Table.from_pylist(new, wider).append_column(DELETED, pa.array([False, False]))
        target.merge_rows(marked, BatchIdentity("query", 1))
        assert [each.get("kind") for each in table.rows()] == [None, "x", None]
        # A row replaces the whole row: the column that it lacks becomes NULL.
        table.target = DeltaMerge(options, table.merge, columns_of(SCHEMA))
        table.write(rows(2, seq=3), batch=2)
        assert [(each["seq"], each["kind"]) for each in table.rows()][1] == (3, None)

    def test_only_files_with_room_for_a_key_are_read(self, tmp_path: Path) -> None:
        table = MergedDelta(tmp_path, SCHEMA, MergeOptions(("id",), "seq"))
        for batch in range(10):
            table.write(rows(*range(batch * 10, batch * 10 + 10)), batch=batch)
        table.write(rows(5, 95, 1000, seq=2), batch=10)
        metrics = DeltaTable(table.path).history(1)[0]["operationMetrics"]
        assert metrics["num_target_files_scanned"] == 2
        assert metrics["num_target_rows_updated"] == 2
        assert metrics["num_target_rows_inserted"] == 1
        assert len(table.rows()) == 101

    def test_only_partitions_with_a_key_are_read(self, tmp_path: Path) -> None:
        table = MergedDelta(tmp_path, SCHEMA, MergeOptions(("id", "part"), "seq"), ("part",))
        table.write(rows(*range(100)), batch=0)
        table.write(rows(5, 95, seq=2), batch=1)
        metrics = DeltaTable(table.path).history(1)[0]["operationMetrics"]
        assert metrics["num_target_files_scanned"] == 2


class TestIceberg:
    """What only Iceberg tables have."""

    def files_read(self, table: MergedTable) -> int:
        snapshot = open_table(named(table.directory)).current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return int(snapshot.summary[FILES_READ] or -1)

    def test_only_files_with_room_for_a_key_are_read(self, tmp_path: Path) -> None:
        table = MergedIceberg(tmp_path, SCHEMA, MergeOptions(("id",), "seq"))
        for batch in range(10):
            table.write(rows(*range(batch * 10, batch * 10 + 10)), batch=batch)
        before = set(live_files(open_table(named(tmp_path))))
        table.write(rows(5, 95, 1000, seq=2), batch=10)
        assert self.files_read(table) == 2
        # Updated rows stay in their files, so the statistics stay narrow.
        assert len(before & set(live_files(open_table(named(tmp_path))))) == 8
        assert len(live_files(open_table(named(tmp_path)))) == 11
        assert len(table.rows()) == 101

    def test_only_partitions_with_a_key_are_read(self, tmp_path: Path) -> None:
        table = MergedIceberg(tmp_path, SCHEMA, MergeOptions(("id", "part"), "seq"), ("part",))
        table.write(rows(*range(100)), batch=0)
        table.write(rows(5, 95, seq=2), batch=1)
        assert self.files_read(table) == 2

    def test_a_file_without_a_changed_row_stays(self, tmp_path: Path) -> None:
        table = MergedIceberg(tmp_path, SCHEMA, MergeOptions(("id",), "seq"))
        table.write(rows(1, 3, seq=5), batch=0)
        before = live_files(open_table(named(tmp_path)))
        table.write(rows(1, 2, seq=4), batch=1)
        assert set(before) < set(live_files(open_table(named(tmp_path))))
        assert table.rows() == [*rows(1, seq=5), *rows(2, seq=4), *rows(3, seq=5)]

    def test_no_unnamed_file_is_left(self, tmp_path: Path) -> None:
        table = MergedIceberg(tmp_path, SCHEMA, MergeOptions(("id",), "seq"))
        storage = table.target.open_storage()
        for batch in range(3):
            for path in table.stage(rows(1)):
                storage.delete_file(path)
            table.target.merge_rows(table.latest(rows(1, batch, seq=batch)), None)
        for path in tmp_path.rglob("_barnabas_staging/*"):
            path.unlink()
        named_files = {Path(each).name for each in live_files(open_table(named(tmp_path)))}
        for snapshot in open_table(named(tmp_path)).snapshots():
            found = open_table(named(tmp_path)).scan(snapshot_id=snapshot.snapshot_id)
            named_files |= {Path(task.file.file_path).name for task in found.plan_files()}
        assert stored_files(tmp_path) == named_files
