"""`format("barnabas_delta")`: the data source that provides Spark with writers, and its options.

Spark imports this module in every session while it looks for data sources, so it imports nothing
large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from barnabas.spark.delta.table_options import TableOptions
from barnabas.spark.delta.table_partitions import check_partition_types
from barnabas.spark.errors import OptionError
from barnabas.spark.merging.merge_options import split_options
from barnabas.spark.option_values import absolute_address, parse_switch
from barnabas.spark.shown_errors import message_first
from barnabas.spark.table_option_lists import DELTA_OPTIONS, given_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from barnabas.spark.delta.merge import DeltaMerge
    from barnabas.spark.delta.writer import DeltaStreamWriter, DeltaWriter
    from barnabas.spark.merging.writers import MergingStreamWriter, MergingWriter


@message_first
class DeltaSink(DataSource):
    """A Delta table as a sink; `deltalake`, DuckDB, Spark's Delta jar and others can read it."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "barnabas_delta"

    def writer(self, schema: StructType, overwrite: bool) -> DeltaWriter | MergingWriter:
        """Return the writer for `df.write`: one commit per job; a second run writes again.

        Raises:
            OptionError: an option or a column's type is wrong.
            DeltaTableError: the rows do not fit the table, or the sink does not support the table.
        """
        from barnabas.spark.delta.writer import DeltaWriter
        from barnabas.spark.merging.writers import MergingWriter

        target = merge_target(self.options, schema, overwrite)
        if target is not None:
            return MergingWriter(target, schema)
        return DeltaWriter(self._parsed(schema, overwrite), schema, overwrite)

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DeltaStreamWriter | MergingStreamWriter:
        """Return the writer for `df.writeStream`, which writes exactly once.

        Output mode "complete" replaces the rows of the table.

        Raises:
            OptionError: an option or a column's type is wrong.
            DeltaTableError: the rows do not fit the table, or the sink does not support the table.
        """
        from barnabas.spark.delta.writer import DeltaStreamWriter
        from barnabas.spark.merging.writers import MergingStreamWriter

        target = merge_target(self.options, schema, overwrite)
        if target is not None:
            return MergingStreamWriter(target, schema)
        return DeltaStreamWriter(self._parsed(schema, overwrite), schema, overwrite)

    def _parsed(self, schema: StructType, overwrite: bool) -> TableOptions:
        options = parse_options(self.options, schema)
        if options.overwrite_schema and not overwrite:
            raise OptionError(
                "overwriteSchema replaces the columns of a table together with its rows: set the"
                " mode to overwrite, or use mergeSchema to add columns"
            )
        return options


def merge_target(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DeltaMerge | None:
    """Return the table for upserts; None without the option mergeKeys.

    Raises:
        OptionError: an option or a column's type is wrong.
        DeltaTableError: the rows do not fit the table, or the sink does not support the table.
    """
    from barnabas.spark.delta.merge import DeltaMerge
    from barnabas.spark.delta.table import load_table
    from barnabas.spark.delta.writer import row_columns

    split = split_options(options, schema, overwrite)
    if split.merge is None:
        return None
    table = parse_options(split.others, split.stored)
    if table.overwrite_schema:
        raise OptionError(
            "overwriteSchema replaces all rows, and mergeKeys keeps them: leave one out"
        )
    target = DeltaMerge(table, split.merge, row_columns(split.stored))
    target.plan(load_table(table))
    return target


def parse_options(options: Mapping[str, str], schema: StructType) -> TableOptions:
    """Check the options of the user; Spark passes their names in lower case.

    Raises:
        OptionError: an option is missing or unknown, or names a missing or unfit column.
    """
    found = given_options(options, DELTA_OPTIONS)
    given = found.named
    path = given.get("path", "")
    if not path:
        raise OptionError("no table: give its directory or address, as in .start('/data/flights')")
    columns = [each.strip() for each in given.get("partitioncolumns", "").split(",")]
    partition_by = tuple(each for each in columns if each)
    missing = [each for each in partition_by if each not in schema.fieldNames()]
    if missing:
        raise OptionError(
            f"partitionColumns names {', '.join(missing)}, which the rows do not have; they have "
            f"{', '.join(schema.fieldNames())}"
        )
    check_partition_types(schema, partition_by)
    if len(partition_by) == len(schema.fieldNames()):
        raise OptionError("partitionColumns names every column: one must be left to be stored")
    return TableOptions(
        absolute_address(path),
        partition_by or None,
        found.prefixed,
        parse_switch("mergeSchema", given.get("mergeschema", "false")),
        parse_switch("overwriteSchema", given.get("overwriteschema", "false")),
    )
