"""`format("barnabas_iceberg")`: the data source that provides Spark with writers, and its options.

Spark imports this module in every session while it looks for data sources, so it imports nothing
large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from barnabas.spark.errors import OptionError
from barnabas.spark.iceberg.catalog import DEFAULT_CATALOG, TableName
from barnabas.spark.iceberg.sink_options import SinkOptions
from barnabas.spark.shown_errors import message_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from barnabas.spark.iceberg.writer import IcebergStreamWriter, IcebergWriter

_CATALOG_PREFIX = "catalog."
_OPTIONS = frozenset({"path", "table", "catalog", "partitioncolumns", "mergeschema"})
# Spark passes its own options of the query too.
_SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname"})
_SWITCH = {"true": True, "false": False}


@message_first
class IcebergSink(DataSource):
    """An Iceberg table as a sink; `pyiceberg`, DuckDB, Polars, Spark's jar and others read it."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "barnabas_iceberg"

    def writer(self, schema: StructType, overwrite: bool) -> IcebergWriter:
        """Return the writer for `df.write`: one commit per job; a second run writes again.

        Raises:
            OptionError: an option or a column's type is wrong.
            IcebergTableError: the rows do not fit the table.
        """
        from barnabas.spark.iceberg.writer import IcebergWriter

        return IcebergWriter(parse_options(self.options, schema), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> IcebergStreamWriter:
        """Return the writer for `df.writeStream`, which writes exactly once.

        Output mode "complete" replaces the rows of the table.

        Raises:
            OptionError: an option or a column's type is wrong.
            IcebergTableError: the rows do not fit the table.
        """
        from barnabas.spark.iceberg.writer import IcebergStreamWriter

        return IcebergStreamWriter(parse_options(self.options, schema), schema, overwrite)


def parse_options(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Check the options of the user; Spark passes their names in lower case.

    Raises:
        OptionError: an option is missing, unknown or wrong, or names a missing column.
    """
    properties: dict[str, str] = {}
    given: dict[str, str] = {}
    for name, value in options.items():
        lowered = name.lower()
        if lowered.startswith(_CATALOG_PREFIX):
            properties[lowered.removeprefix(_CATALOG_PREFIX)] = value
        elif lowered in _OPTIONS:
            given[lowered] = value.strip()
        elif lowered not in _SPARK_OPTIONS:
            raise OptionError(
                f"unknown option {name}: there are table, catalog, catalog.* (properties of the"
                " catalog, such as catalog.uri), partitionColumns and mergeSchema"
            )
    table = given.get("table") or given.get("path", "")
    if "." not in table or "/" in table:
        raise OptionError(
            f"{table!r} names no table of a catalog: write namespace and name, as in"
            " .start('lake.flights')"
        )
    merge = given.get("mergeschema", "false").lower()
    if merge not in _SWITCH:
        raise OptionError(f"mergeSchema is {merge!r}: set it to true or false")
    return SinkOptions(
        TableName(table, given.get("catalog") or DEFAULT_CATALOG, properties),
        _partition_columns(given.get("partitioncolumns", ""), schema),
        _SWITCH[merge],
    )


def _partition_columns(text: str, schema: StructType) -> tuple[str, ...] | None:
    names = tuple(each.strip() for each in text.split(",") if each.strip())
    missing = [each for each in names if each not in schema.fieldNames()]
    if missing:
        raise OptionError(
            f"partitionColumns names {', '.join(missing)}, which the rows do not have; they have "
            f"{', '.join(schema.fieldNames())}"
        )
    return names or None
