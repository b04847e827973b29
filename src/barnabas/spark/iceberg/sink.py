"""`format("barnabas_iceberg")`: the data source that provides Spark with writers, and its options.

Spark imports this module in every session while it looks for data sources, so it imports nothing
large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError
from barnabas.spark.iceberg.catalog import DEFAULT_CATALOG, IcebergOptions, TableName
from barnabas.spark.iceberg.partitions import parse_terms
from barnabas.spark.option_table import ICEBERG_OPTIONS, given_options, parse_switch
from barnabas.spark.tables.rows import stored_schema
from barnabas.spark.tables.sink import TableSink
from barnabas.spark.worker_process import message_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from barnabas.spark.iceberg.commit import IcebergTarget
    from barnabas.spark.iceberg.merge import IcebergMerge
    from barnabas.spark.tables.merge_options import MergeOptions


@message_first
class IcebergSink(TableSink):
    """An Iceberg table as a sink; `pyiceberg`, DuckDB, Polars, Spark's jar and others read it."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "barnabas_iceberg"

    def _table(self, schema: StructType, overwrite: bool) -> IcebergTarget:
        from barnabas.spark.iceberg.commit import IcebergTarget
        from barnabas.spark.iceberg.layout import prepare_table

        options = parse_options(self.options, schema)
        plan = prepare_table(options, stored_schema(schema, self.name()))
        return IcebergTarget(options.name, plan, overwrite)

    def _merged_table(
        self, merge: MergeOptions, others: Mapping[str, str], stored: StructType
    ) -> IcebergMerge:
        from barnabas.spark.iceberg.layout import prepare_table
        from barnabas.spark.iceberg.merge import IcebergMerge

        options = parse_options(others, stored)
        plan = prepare_table(options, stored_schema(stored, self.name()))
        return IcebergMerge(options.name, plan, merge)


def parse_options(options: Mapping[str, str], schema: StructType) -> IcebergOptions:
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
    return IcebergOptions(
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
