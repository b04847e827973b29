"""Addresses of tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.spark.errors import OptionError
from barnabas.spark.iceberg.catalog import absolute
from barnabas.spark.option_values import absolute_address


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
