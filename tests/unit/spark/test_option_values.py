"""Options of the sinks for tables: their names, and the addresses of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from barnabas.spark.delta.options import parse_delta_options
from barnabas.spark.errors import OptionError
from barnabas.spark.iceberg.catalog import absolute, parse_iceberg_options
from barnabas.spark.option_table import absolute_address


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("/data/flights", "/data/flights"),
        ("file:///data/flights", "/data/flights"),
        ("file:/data/flights", "/data/flights"),
        ("file://localhost/data/a%20b/", "/data/a%20b"),
        ("FILE:///data/../flights", "/flights"),
        ("s3://bucket/flights", "s3://bucket/flights"),
    ],
)
def test_the_address_of_a_local_table_is_an_absolute_path(address: str, path: str) -> None:
    assert absolute_address(address) == path
    # A warehouse of Iceberg is an address too.
    assert absolute({"warehouse": address, "uri": "sqlite:////c.db"})["warehouse"] == path


def test_a_relative_path_is_of_the_working_directory() -> None:
    assert absolute_address("flights") == str(Path("flights").absolute())


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("file://data/flights", "names the host data: write file:///data/flights"),
        ("file:flights", "is a relative path"),
    ],
)
def test_an_address_that_names_no_local_directory_is_refused(address: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        absolute_address(address)


SCHEMA = StructType().add("id", LongType()).add("kind", StringType())
SINKS: dict[str, tuple[Any, str]] = {
    "delta": (parse_delta_options, "/t"),
    "iceberg": (parse_iceberg_options, "lake.t"),
}


@pytest.mark.parametrize(("parse", "table"), SINKS.values(), ids=SINKS)
def test_an_unknown_option_is_refused_with_the_names_that_there_are(parse: Any, table: str) -> None:
    names = r"unknown option mergeSchemas: there are .*partitionColumns, mergeSchema, .*mergeKeys,"
    with pytest.raises(OptionError, match=names):
        parse({"path": table, "mergeSchemas": "true"}, SCHEMA)


@pytest.mark.parametrize(("parse", "table"), SINKS.values(), ids=SINKS)
def test_spaces_and_case_of_options_do_not_matter(parse: Any, table: str) -> None:
    given = {"path": table, "MERGESCHEMA": " true ", "queryName": "q", "checkpointLocation": "/c"}
    assert parse(given, SCHEMA).merge_schema


def test_iceberg_has_no_option_that_replaces_the_columns() -> None:
    message = r"overwriteSchema is an option of Delta tables: the columns of lake\.t stay"
    with pytest.raises(OptionError, match=message):
        parse_iceberg_options({"path": "lake.t", "overwriteSchema": "true"}, SCHEMA)
