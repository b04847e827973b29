"""`format("barnabas_iceberg")`: the data source that provides Spark with writers, and its options.

Spark imports this module in every session while it looks for data sources, so it imports nothing
large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from barnabas.spark.errors import OptionError
from barnabas.spark.iceberg.catalog import DEFAULT_CATALOG, TableName
from barnabas.spark.iceberg.partitions import parse_terms
from barnabas.spark.iceberg.sink_options import SinkOptions
from barnabas.spark.merging.merge_options import split_options
from barnabas.spark.option_values import parse_switch
from barnabas.spark.shown_errors import message_first
from barnabas.spark.table_option_lists import ICEBERG_OPTIONS, given_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from barnabas.spark.iceberg.merge import IcebergMerge
    from barnabas.spark.iceberg.writer import IcebergStreamWriter, IcebergWriter
    from barnabas.spark.merging.writers import MergingStreamWriter, MergingWriter


@message_first
class IcebergSink(DataSource):
    """An Iceberg table as a sink; `pyiceberg`, DuckDB, Polars, Spark's jar and others read it."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "barnabas_iceberg"

    def writer(self, schema: StructType, overwrite: bool) -> IcebergWriter | MergingWriter:
        """Return the writer for `df.write`: one commit per job; a second run writes again.

        Raises:
            OptionError: an option or a column's type is wrong.
            IcebergTableError: the rows do not fit the table.
        """
        from barnabas.spark.iceberg.writer import IcebergWriter
        from barnabas.spark.merging.writers import MergingWriter

        target = merge_target(self.options, schema, overwrite)
        if target is not None:
            return MergingWriter(target, schema)
        return IcebergWriter(parse_options(self.options, schema), schema, overwrite)

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> IcebergStreamWriter | MergingStreamWriter:
        """Return the writer for `df.writeStream`, which writes exactly once.

        Output mode "complete" replaces the rows of the table.

        Raises:
            OptionError: an option or a column's type is wrong.
            IcebergTableError: the rows do not fit the table.
        """
        from barnabas.spark.iceberg.writer import IcebergStreamWriter
        from barnabas.spark.merging.writers import MergingStreamWriter

        target = merge_target(self.options, schema, overwrite)
        if target is not None:
            return MergingStreamWriter(target, schema)
        return IcebergStreamWriter(parse_options(self.options, schema), schema, overwrite)


def merge_target(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> IcebergMerge | None:
    """Return the table for upserts; None without the option mergeKeys.

    Raises:
        OptionError: an option or a column's type is wrong.
        IcebergTableError: the rows do not fit the table.
    """
    from barnabas.spark.iceberg.layout import prepare_table
    from barnabas.spark.iceberg.merge import IcebergMerge
    from barnabas.spark.iceberg.writer import row_schema

    split = split_options(options, schema, overwrite)
    if split.merge is None:
        return None
    table = parse_options(split.others, split.stored)
    return IcebergMerge(table.name, prepare_table(table, row_schema(split.stored)), split.merge)


def parse_options(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Check the options of the user; Spark passes their names in lower case.

    Raises:
        OptionError: an option is missing, unknown or wrong, or names a missing column.
    """
    table = _table_name(options)
    if "overwriteschema" in {each.lower() for each in options}:
        raise OptionError(
            f"overwriteSchema is an option of Delta tables: the columns of {table} stay. Use"
            " mergeSchema to add columns, or write a new table"
        )
    found = given_options(options, ICEBERG_OPTIONS)
    given = found.named
    return SinkOptions(
        TableName(table, given.get("catalog") or DEFAULT_CATALOG, found.prefixed),
        parse_terms(given.get("partitioncolumns", ""), schema.fieldNames()) or None,
        parse_switch("mergeSchema", given.get("mergeschema", "false")),
    )


def _table_name(options: Mapping[str, str]) -> str:
    given = {name.lower(): value.strip() for name, value in options.items()}
    table = given.get("table") or given.get("path", "")
    if "." not in table or "/" in table:
        raise OptionError(
            f"{table!r} names no table of a catalog: write namespace and name, as in"
            " .start('lake.flights')"
        )
    return table
