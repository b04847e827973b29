"""The table of a sink is there after the first batch, also if the batch has no rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.pipelines.output import Sink
from pyspark.pipelines.source_code_location import SourceCodeLocation
from pyspark.sql.types import LongType, StructField, StructType

from barnabas.spark.pipelines.definition_checks import stored_sink
from barnabas.spark.table_sinks import DeltaSink, IcebergSink
from barnabas.spark.tables.writers import WrittenFiles
from spark.iceberg_tables import named

ROWS = StructType([StructField("id", LongType()), StructField("count", LongType())])
# What a task without rows reports.
NO_FILES = WrittenFiles([], "q")


@pytest.mark.parametrize("merge", [{}, {"mergeKeys": "id"}], ids=["append", "merge"])
@pytest.mark.parametrize("kind", [DeltaSink, IcebergSink])
def test_a_first_batch_without_rows_creates_the_table(
    tmp_path: Path, kind: type[DeltaSink | IcebergSink], merge: dict[str, str]
) -> None:
    if kind is DeltaSink:
        options = {"path": str(tmp_path / "hours")}
    else:
        name = named(tmp_path)
        catalog = {f"catalog.{key}": value for key, value in name.properties.items()}
        options = {"table": name.table, "catalog": name.catalog, **catalog}
    sink = Sink("hours", None, SourceCodeLocation("datasets.py", 1), kind.name(), options)
    assert stored_sink(sink).missing is not None
    writer = kind(options | merge).streamWriter(ROWS, overwrite=False)
    writer.commit([NO_FILES], 0)
    assert stored_sink(sink).missing is None


def test_later_batches_without_rows_are_no_commits(tmp_path: Path) -> None:
    for batch in range(3):
        writer = DeltaSink({"path": str(tmp_path)}).streamWriter(ROWS, overwrite=False)
        writer.commit([NO_FILES], batch)
    assert DeltaTable(tmp_path).version() == 0
