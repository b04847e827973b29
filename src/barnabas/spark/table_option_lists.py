"""The options of `format("barnabas_delta")` and `format("barnabas_iceberg")`.

This is the only list of the names. The sinks check names against it, and
`tools/document_spark_options.py` writes the tables in docs/spark.md and docs/tables.md. Spark
imports this module in every session while it looks for data sources, so it imports nothing large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class TableOption:
    """One option, with its usual spelling; options are compared in lower case."""

    # With `.*` at its end, the beginning of many names.
    name: str
    # For people.
    default: str
    sentence: str


DELTA_OPTIONS = (
    TableOption(
        "path", "must be set",
        "The table: a directory (also `file:///data/flights`), or an address such as "
        "`s3://bucket/table`. `.start(path)` and `.save(path)` set it.",
    ),
    TableOption(
        "partitionColumns", "none, or those of the table",
        "The columns that a new table is partitioned by, separated by commas (docs/tables.md). A "
        "table with other partitions is refused.",
    ),
    TableOption(
        "mergeSchema", "`false`",
        "`true`: add columns and fields that only the rows have, and store NULL for those that "
        "rows lack.",
    ),
    TableOption(
        "overwriteSchema", "`false`",
        "`true`, with mode `overwrite` or output mode `complete`: replace the columns together "
        "with the rows.",
    ),
    TableOption(
        "storage.*", "none",
        "Settings of the object store, for instance `storage.aws_region`.",
    ),
)  # fmt: skip
ICEBERG_OPTIONS = (
    TableOption(
        "table", "must be set",
        "Namespace and name of the table: `lake.flights`. `.start(table)` and `.save(table)` do "
        "the same.",
    ),
    TableOption("path", "none", "The table, if `table` is not set: `.start(table)` sets it."),
    TableOption(
        "catalog.*", "those of the configuration",
        "Properties of the catalog, as `pyiceberg` defines them: `catalog.uri`, "
        "`catalog.warehouse`, `catalog.token`, `catalog.s3.region`.",
    ),
    TableOption(
        "catalog", "`default`",
        "The name of the catalog, for `pyiceberg`'s configuration (`.pyiceberg.yaml`, "
        "`PYICEBERG_CATALOG__…`).",
    ),
    TableOption(
        "partitionColumns", "none, or those of the table",
        "What a new table is partitioned by, separated by commas: `day(time), bucket(16, id)`. A "
        "table with other partitions is refused.",
    ),
    TableOption(
        "mergeSchema", "`false`",
        "`true`: add columns and fields that only the rows have, widen types, and store NULL for "
        "columns and fields that rows lack.",
    ),
)  # fmt: skip
UPSERT_OPTIONS = (
    TableOption(
        "mergeKeys", "none: rows are added",
        "The columns that identify a row: `id`, or `id,region`.",
    ),
    TableOption(
        "sequenceColumn", "none",
        "A column of which a higher value is newer: an offset, a position in a log, a time.",
    ),
    TableOption(
        "deleteWhen", "none",
        "A condition: the keys of rows that meet it are deleted.",
    ),
    TableOption("exceptColumns", "none", "Columns of the rows that the table does not have."),
)  # fmt: skip

# Spark passes its own options of the query too.
_SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """What the user set, without Spark's own options."""

    # By name in lower case, without spaces around the values.
    named: dict[str, str]
    # Options whose beginning is listed, without the beginning.
    prefixed: dict[str, str]


def given_options(options: Mapping[str, str], listed: Sequence[TableOption]) -> GivenOptions:
    """Sort the options of a sink; Spark passes their names in lower case.

    Args:
        options: what the user set, without the options of upserts.
        listed: the options of the sink, of which one is a beginning of names.

    Raises:
        OptionError: an option is not listed.
    """
    [prefix] = [each.name.removesuffix("*") for each in listed if each.name.endswith("*")]
    names = {each.name.lower() for each in listed}
    given = GivenOptions({}, {})
    for name, value in options.items():
        lowered = name.lower()
        if lowered.startswith(prefix):
            given.prefixed[lowered.removeprefix(prefix)] = value
        elif lowered in names:
            given.named[lowered] = value.strip()
        elif lowered not in _SPARK_OPTIONS:
            known = ", ".join(each.name for each in listed)
            upserts = ", ".join(each.name for each in UPSERT_OPTIONS)
            raise OptionError(
                f"unknown option {name}: there are {known}, and {upserts} for upserts"
            )
    return given
