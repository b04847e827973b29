"""The options of the sink after their check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.spark.iceberg.catalog import TableName


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where and how the sink writes."""

    name: TableName
    # Columns of a new table's partitions; None: none, or those of the existing table.
    partition_by: tuple[str, ...] | None = None
    # Whether columns that only the rows have are added to the table.
    merge_schema: bool = False
