"""Compaction and expiry of Delta tables."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from barnabas.spark.delta.maintenance import MaintainedDelta
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.errors import MaintenanceError
from spark.delta_tables import column, create_table, deletion_vector, write
from spark.iceberg_tables import now_ms, stored_files

TARGET = 128 << 20
HOUR_MS = 3_600_000


def quiet(_done: int, _total: int) -> None:
    """Progress that is not shown."""


@pytest.fixture
def table(tmp_path: Path) -> MaintainedDelta:
    """A table of three files, each of a batch."""
    for batch in range(3):
        write_deltalake(
            tmp_path,
            pa.table({"id": [batch]}),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction("query", batch)]),
        )
    return MaintainedDelta(DeltaOptions(str(tmp_path)))


def ids(directory: Path) -> list[int]:
    found: list[int] = DeltaTable(directory).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


def test_a_recent_expiry_leaves_files_that_no_version_named(
    table: MaintainedDelta, tmp_path: Path
) -> None:
    (tmp_path / "part-left.parquet").write_bytes(b"of a batch that is being written")
    assert not table.expire(now_ms(), execute=True, progress=quiet).files
    assert "part-left.parquet" in stored_files(tmp_path)


def test_an_expiry_removes_old_files_that_no_version_named(
    table: MaintainedDelta, tmp_path: Path
) -> None:
    for name, moment in (("part-old.parquet", 0), ("part-young.parquet", None)):
        (tmp_path / name).write_bytes(b"of a killed task")
        if moment is not None:
            os.utime(tmp_path / name, (moment, moment))
    before = now_ms() - 2 * HOUR_MS
    assert table.expire(before, execute=True, progress=quiet).files == ("part-old.parquet",)
    assert "part-young.parquet" in stored_files(tmp_path)
    assert ids(tmp_path) == [0, 1, 2]


def test_an_expiry_counts_whole_hours(table: MaintainedDelta, tmp_path: Path) -> None:
    table.compact(TARGET, quiet)
    before = now_ms() - HOUR_MS // 2
    assert not table.expire(before, execute=True, progress=quiet).files
    assert len(stored_files(tmp_path)) == 4


def test_a_directory_without_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MaintenanceError, match="is no Delta table"):
        MaintainedDelta(DeltaOptions(str(tmp_path))).compact(TARGET, quiet)


def test_rows_behind_deletion_vectors_do_not_count(tmp_path: Path) -> None:
    options = create_table(
        tmp_path / "table",
        [column("v")],
        pa.table({"v": pa.array(range(30), pa.int64())}),
        protocol={
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        },
        deletion_vector=deletion_vector(3, 4, 7, 11),
    )
    write(options, pa.table({"v": [100]}))
    found = MaintainedDelta(options).status(TARGET)
    assert (found.rows, found.files) == (27, 2)


def test_rows_of_files_without_statistics_count(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"a b": ["ü"] * 3, "id": [1, 2, 3]}), partition_by="a b")
    for log in (tmp_path / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.open()]
        for each in actions:
            each.get("add", {}).pop("stats", None)
        log.write_text("".join(json.dumps(each) + "\n" for each in actions))
    assert MaintainedDelta(DeltaOptions(str(tmp_path))).status(TARGET).rows == 3
