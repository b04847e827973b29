"""`format("barnabas_delta")`: the data source that provides Spark with writers.

Spark imports this module in every session while it looks for data sources, so it imports nothing
large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.delta.options import parse_options
from barnabas.spark.errors import OptionError
from barnabas.spark.tables.sink import TableSink
from barnabas.spark.worker_process import message_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from barnabas.spark.delta.merge import DeltaMerge
    from barnabas.spark.delta.table import DeltaTarget
    from barnabas.spark.tables.merge_options import MergeOptions


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

        options = parse_options(self.options, schema)
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

        options = parse_options(others, stored)
        if options.overwrite_schema:
            raise OptionError(
                "overwriteSchema replaces all rows, and mergeKeys keeps them: leave one out"
            )
        target = DeltaMerge(options, merge, row_columns(stored))
        target.plan(load_table(options))
        return target
