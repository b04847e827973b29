"""Tables of rows with times after the year 9999, for which Python has no dates."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.spark.delta.files import column_statistics
from barnabas.spark.iceberg.files import task_files
from spark.iceberg_tables import Writer, named

# The year 20000.
FAR_US = 568_971_820_800_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("time", pa.timestamp("us", "UTC"))])
ROWS = pa.table({"id": [7], "time": [FAR_US]}).cast(SCHEMA)


def test_a_delta_file_has_no_bounds_of_such_times(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    found = column_statistics(pq.read_metadata(tmp_path / "rows.parquet"))
    assert (found["minValues"], found["maxValues"]) == ({"id": 7}, {"id": 7})
    assert found["nullCount"] == {"id": 0, "time": 0}


def test_an_iceberg_file_has_no_bounds_of_such_times(tmp_path: Path) -> None:
    files = task_files(Writer(named(tmp_path), schema=SCHEMA).plan)
    files.write(ROWS.to_batches()[0])
    (file,) = files.close()
    assert (file.record_count, set(file.lower_bounds), file.null_value_counts) == (
        1,
        {1},
        {1: 0, 2: 0},
    )
