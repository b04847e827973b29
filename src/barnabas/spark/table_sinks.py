"""`format("barnabas_delta")` and `format("barnabas_iceberg")`: data sources with writers of tables.

Spark imports this module in every session while it looks for data sources, so it imports nothing
large.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from barnabas.spark.delta.options import parse_delta_options
from barnabas.spark.errors import OptionError
from barnabas.spark.iceberg.catalog import parse_iceberg_options
from barnabas.spark.tables.merge_options import split_options
from barnabas.spark.tables.rows import arrow_rows, stored_schema
from barnabas.spark.worker_process import message_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from barnabas.spark.delta.merge import DeltaMerge
    from barnabas.spark.delta.table import DeltaTarget
    from barnabas.spark.iceberg.commit import IcebergTarget
    from barnabas.spark.iceberg.merge import IcebergMerge
    from barnabas.spark.tables.merge_options import MergeOptions
    from barnabas.spark.tables.staging import MergeTarget
    from barnabas.spark.tables.writers import TableStreamWriter, TableTarget, TableWriter


@message_first
class TableSink(DataSource):
    """A table as a sink: appends or replaces rows, or changes them by their keys.

    All methods raise `OptionError` for a wrong option or column, and the error of the table's kind
    if the rows do not fit the table, or the sink does not support it.
    """

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        """Return the writer for `df.write`: one commit per job; a second run writes again."""
        from barnabas.spark.tables.writers import TableWriter

        return TableWriter(self._target(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> TableStreamWriter:
        """Return the writer for `df.writeStream`, which writes exactly once.

        Output mode "complete" replaces the rows of the table.
        """
        from barnabas.spark.tables.writers import TableStreamWriter

        return TableStreamWriter(self._target(schema, overwrite))

    def _target(self, schema: StructType, overwrite: bool) -> TableTarget:
        from barnabas.spark.tables.staging import UpsertTarget

        split = split_options(self.options, schema, overwrite)
        if split.merge is None:
            return self._table(schema, overwrite)
        return UpsertTarget(
            self._merged_table(split.merge, split.others, split.stored), arrow_rows(schema)
        )

    @abstractmethod
    def _table(self, schema: StructType, overwrite: bool) -> TableTarget:
        """Return the table to which rows are added, or whose rows they replace."""

    @abstractmethod
    def _merged_table(
        self, merge: MergeOptions, others: Mapping[str, str], stored: StructType
    ) -> MergeTarget:
        """Return the table whose rows are changed by their keys.

        Args:
            merge: the options of upserts.
            others: the other options.
            stored: the columns that the table has.
        """


@message_first
class DeltaSink(TableSink):
    """A Delta table as a sink; `deltalake`, DuckDB, Spark's Delta jar and others can read it."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "barnabas_delta"

    def _table(self, schema: StructType, overwrite: bool) -> DeltaTarget:
        from barnabas.spark.delta.columns import row_columns
        from barnabas.spark.delta.table import DeltaTarget

        options = parse_delta_options(self.options, schema)
        if options.overwrite_schema and not overwrite:
            raise OptionError(
                "overwriteSchema replaces the columns of a table together with its rows: set the"
                " mode to overwrite, or use mergeSchema to add columns"
            )
        return DeltaTarget.planned(options, row_columns(schema), overwrite=overwrite)

    def _merged_table(
        self, merge: MergeOptions, others: Mapping[str, str], stored: StructType
    ) -> DeltaMerge:
        from barnabas.spark.delta.columns import row_columns
        from barnabas.spark.delta.merge import DeltaMerge
        from barnabas.spark.delta.table import load_table

        options = parse_delta_options(others, stored)
        if options.overwrite_schema:
            raise OptionError(
                "overwriteSchema replaces all rows, and mergeKeys keeps them: leave one out"
            )
        target = DeltaMerge(options, merge, row_columns(stored))
        target.plan(load_table(options))
        return target


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

        options = parse_iceberg_options(self.options, schema)
        plan = prepare_table(options, stored_schema(schema, self.name()))
        return IcebergTarget(options.name, plan, overwrite)

    def _merged_table(
        self, merge: MergeOptions, others: Mapping[str, str], stored: StructType
    ) -> IcebergMerge:
        from barnabas.spark.iceberg.layout import prepare_table
        from barnabas.spark.iceberg.merge import IcebergMerge

        options = parse_iceberg_options(others, stored)
        plan = prepare_table(options, stored_schema(stored, self.name()))
        return IcebergMerge(options.name, plan, merge)
