"""Options of `format("barnabas_delta")`: where a table is, and how the sink may change it.

Spark imports this module in every session while it looks for data sources, so it imports nothing
large.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError
from barnabas.spark.option_table import DELTA_OPTIONS, absolute_address, given_options, parse_switch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import StructType

# Spark's names of types that a partition can have. The protocol's text for binary values is not
# what its readers expect.
_TYPES = frozenset(
    {
        "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string",
        "char", "varchar", "date", "timestamp", "timestamp_ntz",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeltaOptions:
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


def parse_delta_options(options: Mapping[str, str], schema: StructType) -> DeltaOptions:
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
    _check_partition_types(schema, partition_by)
    if len(partition_by) == len(schema.fieldNames()):
        raise OptionError("partitionColumns names every column: one must be left to be stored")
    return DeltaOptions(
        absolute_address(path),
        partition_by or None,
        found.prefixed,
        parse_switch("mergeSchema", given.get("mergeschema", "false")),
        parse_switch("overwriteSchema", given.get("overwriteschema", "false")),
    )


def _check_partition_types(schema: StructType, partition_by: Sequence[str]) -> None:
    """Refuse columns that no directory can be named after.

    Raises:
        OptionError: a column of the partitions is binary or nested, or its name is unfit.
    """
    for name in partition_by:
        if "=" in name or "/" in name:
            raise OptionError(
                f"partitionColumns names {name!r}: a directory of the table could not be told"
                " apart from others with = or / in its name"
            )
        kind = schema[name].dataType
        if kind.typeName() not in _TYPES:
            raise OptionError(
                f"partitionColumns names {name}, which is {kind.simpleString()}: a Delta table"
                " can be partitioned by texts, numbers, dates, times and booleans only"
            )
