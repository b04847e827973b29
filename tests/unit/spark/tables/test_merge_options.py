"""Options of upserts: the same for both table sinks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import ArrayType, DoubleType, LongType, StringType, StructType

from barnabas.spark.errors import OptionError
from barnabas.spark.iceberg.catalog import open_table
from barnabas.spark.table_sinks import DeltaSink, IcebergSink
from barnabas.spark.tables.merge_options import MergeOptions, split_options
from barnabas.spark.tables.writers import TableStreamWriter, TableWriter
from spark.iceberg_tables import named

SCHEMA = (
    StructType()
    .add("id", LongType())
    .add("region", StringType())
    .add("value", DoubleType())
    .add("tags", ArrayType(StringType()))
    .add("op", StringType())
    .add("seq", LongType())
)


def parsed(overwrite: bool = False, **options: str) -> MergeOptions | None:
    return split_options(options, SCHEMA, overwrite).merge


def test_options_are_read() -> None:
    assert parsed(path="x") is None
    found = parsed(
        mergekeys="id, region", sequencecolumn="seq", deletewhen="op = 'd'", exceptcolumns="op,seq"
    )
    assert found == MergeOptions(("id", "region"), "seq", "op = 'd'", ("op", "seq"))
    assert found.stored_sequence is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sequencecolumn": "seq"}, "sequenceColumn needs mergeKeys"),
        ({"mergekeys": " , "}, "mergeKeys is empty: name the columns that identify a row"),
        ({"mergekeys": "id,nr"}, "mergeKeys names nr, which the rows do not have; they have id"),
        ({"mergekeys": "id", "sequencecolumn": "lsn"}, "sequenceColumn names lsn"),
        ({"mergekeys": "id", "exceptcolumns": "x"}, "exceptColumns names x"),
        ({"mergekeys": "id", "exceptcolumns": "id"}, "exceptColumns leaves out id, which mergeKey"),
        ({"mergekeys": "value"}, "mergeKeys names value of type double"),
        ({"mergekeys": "tags"}, "mergeKeys names tags of type list"),
        ({"mergekeys": "id", "sequencecolumn": "tags"}, "sequenceColumn names tags of type list"),
        ({"mergekeys": "id", "deletewhen": "op"}, "deleteWhen is 'op'"),
        ({"mergekeys": "id", "mergekey": "id"}, "unknown option mergekey: there are "),
        (
            {"mergekeys": "id", "partitioncolumns": "op", "exceptcolumns": "op"},
            "partitionColumns names op",
        ),
    ],
)
def test_wrong_options_are_refused_by_both_sinks(
    options: dict[str, str], problem: str, tmp_path: Path
) -> None:
    catalog = {f"catalog.{key}": value for key, value in named(tmp_path).properties.items()}
    for sink in (
        DeltaSink({"path": str(tmp_path / "out"), **options}),
        IcebergSink({"path": "lake.flights", **catalog, **options}),
    ):
        with pytest.raises(OptionError, match=problem):
            sink.streamWriter(SCHEMA, False)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "warehouse").exists()


def test_output_mode_complete_and_mode_overwrite_are_refused() -> None:
    sink = DeltaSink({"path": "out", "mergekeys": "id"})
    with pytest.raises(OptionError, match="output mode complete and mode overwrite"):
        sink.streamWriter(SCHEMA, True)
    with pytest.raises(OptionError, match="output mode complete and mode overwrite"):
        sink.writer(SCHEMA, True)


def test_both_sinks_make_a_writer(tmp_path: Path) -> None:
    options = {"mergekeys": "id", "deletewhen": "op = 'd'", "exceptcolumns": "op"}
    catalog = {f"catalog.{key}": value for key, value in named(tmp_path).properties.items()}
    sink = IcebergSink({"path": "lake.flights", **catalog, **options})
    assert isinstance(sink.streamWriter(SCHEMA, False), TableStreamWriter)
    assert isinstance(sink.writer(SCHEMA, False), TableWriter)
    columns = open_table(named(tmp_path)).schema().column_names
    assert "op" not in columns
    assert "seq" in columns
    sink = DeltaSink({"path": str(tmp_path / "out"), **options})
    assert isinstance(sink.streamWriter(SCHEMA, False), TableStreamWriter)
