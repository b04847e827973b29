"""`format("barnabas_delta")`: the data source that provides Spark with writers, and its options.

Spark imports this module in every session while it looks for data sources, so it imports nothing
large.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from barnabas.spark.delta.table import TableOptions
from barnabas.spark.errors import OptionError
from barnabas.spark.shown_errors import message_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from barnabas.spark.delta.writer import DeltaStreamWriter, DeltaWriter

_STORAGE_PREFIX = "storage."
_OPTIONS = frozenset({"path", "partitioncolumns"})
# Spark passes its own options of the query too.
_SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname"})


@message_first
class DeltaSink(DataSource):
    """A Delta table as a sink; `deltalake`, DuckDB, Spark's Delta jar and others can read it."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "barnabas_delta"

    def writer(self, schema: StructType, overwrite: bool) -> DeltaWriter:
        """Return the writer for `df.write`: one commit per job; a second run writes again.

        Raises:
            OptionError: an option or a column's type is wrong.
        """
        from barnabas.spark.delta.writer import DeltaWriter

        return DeltaWriter(parse_options(self.options, schema), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DeltaStreamWriter:
        """Return the writer for `df.writeStream`, which writes exactly once.

        Output mode "complete" replaces the rows of the table.

        Raises:
            OptionError: an option or a column's type is wrong.
        """
        from barnabas.spark.delta.writer import DeltaStreamWriter

        return DeltaStreamWriter(parse_options(self.options, schema), schema, overwrite)


def parse_options(options: Mapping[str, str], schema: StructType) -> TableOptions:
    """Check the options of the user; Spark passes their names in lower case.

    Raises:
        OptionError: an option is missing or unknown, or names a missing column.
    """
    storage: dict[str, str] = {}
    given: dict[str, str] = {}
    for name, value in options.items():
        lowered = name.lower()
        if lowered.startswith(_STORAGE_PREFIX):
            storage[lowered.removeprefix(_STORAGE_PREFIX)] = value
        elif lowered in _OPTIONS:
            given[lowered] = value
        elif lowered not in _SPARK_OPTIONS:
            raise OptionError(
                f"unknown option {name}: there are path, partitionColumns and storage.* (settings"
                " of the object store, such as storage.aws_region)"
            )
    path = given.get("path", "").strip()
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
    if len(partition_by) == len(schema.fieldNames()):
        raise OptionError("partitionColumns names every column: one must be left to be stored")
    # Workers may have another working directory.
    address = path if "://" in path else os.path.abspath(path)  # noqa: PTH100 - keeps links
    return TableOptions(address, partition_by, storage)
