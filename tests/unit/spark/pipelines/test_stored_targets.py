"""What a pipeline finds of the tables that its sinks have written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.pipelines.output import Sink
from pyspark.pipelines.source_code_location import SourceCodeLocation

from barnabas.spark.pipelines.changes import StoredTable
from barnabas.spark.pipelines.definition_checks import stored_sink
from spark.iceberg_tables import Writer, named


def sink(kind: str, **options: str) -> Sink:
    place = SourceCodeLocation(filename="flows.py", line_number=1)
    return Sink(name="out", comment=None, source_code_location=place, format=kind, options=options)


@pytest.mark.parametrize("spelling", ["{}", "file://{}", "file:{}"])
def test_a_missing_delta_table_is_named_until_it_is_there(tmp_path: Path, spelling: str) -> None:
    directory = tmp_path / "a b"
    found = sink("barnabas_delta", PATH=spelling.format(directory))
    assert stored_sink(found).missing == f"there is no Delta table in {directory}"
    write_deltalake(directory, pa.table({"id": [1]}))
    assert stored_sink(found) == StoredTable()


@pytest.mark.parametrize("option", ["table", "path"])
def test_a_missing_iceberg_table_is_named_until_it_is_there(tmp_path: Path, option: str) -> None:
    name = named(tmp_path)
    properties = {f"catalog.{key}": value for key, value in name.properties.items()}
    found = sink("barnabas_iceberg", **{option: name.table}, **properties)
    assert stored_sink(found).missing == "the catalog has no Iceberg table lake.flights"
    Writer(name)
    assert stored_sink(found) == StoredTable()


@pytest.mark.parametrize("kind", ["barnabas", "parquet", "barnabas_delta", "barnabas_iceberg"])
def test_other_targets_and_sinks_without_a_table_are_unknown(kind: str) -> None:
    assert stored_sink(sink(kind, topic="t")) == StoredTable()
