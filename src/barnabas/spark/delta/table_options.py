"""Where a Delta table is, and how the sink may write and change it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Address and layout of a table."""

    # A directory, or an address such as s3://bucket/table.
    address: str
    # Columns of a new table's partitions; None: none, or those of the existing table.
    partition_by: tuple[str, ...] | None = None
    # Settings of the object store.
    storage: dict[str, str] = field(default_factory=dict)
    # Whether columns that only the rows have are added to the table, and rows may lack columns.
    merge_schema: bool = False
    # Whether rows that replace all others replace the columns of the table too.
    overwrite_schema: bool = False

    @property
    def is_local(self) -> bool:
        """Whether the table is a local directory."""
        return "://" not in self.address
