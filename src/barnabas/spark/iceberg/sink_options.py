"""The options of the sink after their check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.spark.iceberg.catalog import TableName
    from barnabas.spark.iceberg.partitions import PartitionTerm


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where and how the sink writes."""

    name: TableName
    # What a new table is partitioned by; None: nothing, or as the existing table.
    partition_by: tuple[PartitionTerm, ...] | None = None
    # Whether columns that only the rows have are added to the table.
    merge_schema: bool = False
