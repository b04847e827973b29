"""The data source that both table sinks share.

Spark imports this module in every session while it looks for data sources, so it imports nothing
large.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from barnabas.spark.tables.merge_options import split_options
from barnabas.spark.worker_process import message_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

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
        from barnabas.spark.tables.rows import arrow_rows
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
