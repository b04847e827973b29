"""Names an Iceberg table, and finds it in its catalog by `pyiceberg`'s own properties."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from barnabas.spark.errors import OptionError
from barnabas.spark.iceberg.partitions import parse_terms
from barnabas.spark.option_table import (
    ICEBERG_OPTIONS,
    absolute_address,
    given_options,
    parse_switch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql.types import StructType

    from barnabas.spark.iceberg.partitions import PartitionTerm

DEFAULT_CATALOG = "default"
# How long a writer waits for another one that has locked a catalog in SQLite.
_SQLITE_TIMEOUT_S = 60
# A catalog in a database has two tables, each of which another process may create at this moment.
_CREATIONS = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableName:
    """An Iceberg table and its catalog."""

    # With its namespace: lake.flights.
    table: str
    # `pyiceberg` looks up this name in its own configuration.
    catalog: str = DEFAULT_CATALOG
    # Properties of the catalog, such as uri and warehouse; they beat the configuration.
    properties: dict[str, str] = field(default_factory=dict)


def open_catalog(name: TableName) -> Catalog:
    """Connect to the catalog of a table.

    Raises:
        ValueError: properties are missing or wrong.
    """
    from pyiceberg.catalog import load_catalog

    return created_once(lambda: load_catalog(name.catalog, **absolute(name.properties)))


def created_once(create: Callable[[], T]) -> T:
    """Call a function that creates what is missing in a catalog, also beside others that do so.

    `pyiceberg` looks for tables of the database and for namespaces before it creates them. Another
    process may create them between these two steps; the next call finds them.

    Raises:
        DBAPIError: the database of the catalog failed.
    """
    for _ in range(_CREATIONS):
        try:
            return create()
        except Exception as error:
            if not _was_created_meanwhile(error):
                raise
    return create()


def _was_created_meanwhile(error: Exception) -> bool:
    from sqlalchemy.exc import DBAPIError, IntegrityError

    return isinstance(error, IntegrityError) or (
        isinstance(error, DBAPIError) and "already exists" in str(error)
    )


def open_table(name: TableName) -> Table:
    """Load the current state of a table.

    Raises:
        NoSuchTableError: the catalog has no such table.
    """
    return open_catalog(name).load_table(name.table)


def absolute(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with absolute paths: a process may have another working directory."""
    result = dict(properties)
    warehouse = result.get("warehouse", "")
    # The warehouse of a REST catalog can be any name.
    if warehouse and result.get("uri", "").startswith("sqlite"):
        result["warehouse"] = absolute_address(warehouse)
    scheme, separator, path = result.get("uri", "").partition(":///")
    if separator and scheme.startswith("sqlite"):
        path, question, query = path.partition("?")
        if path and not path.startswith(":"):
            path = os.path.abspath(path)  # noqa: PTH100 - keeps links
        query = query if question else f"timeout={_SQLITE_TIMEOUT_S}"
        result["uri"] = f"{scheme}:///{path}?{query}"
    return result


@dataclass(frozen=True, slots=True)
class IcebergOptions:
    """The checked options of the sink."""

    name: TableName
    # What a new table is partitioned by; None: nothing, or as the existing table.
    partition_by: tuple[PartitionTerm, ...] | None = None
    # Whether columns that only the rows have are added to the table.
    merge_schema: bool = False


def parse_iceberg_options(options: Mapping[str, str], schema: StructType) -> IcebergOptions:
    """Check the options of the user; Spark passes their names in lower case.

    Raises:
        OptionError: an option is missing, unknown or wrong, or names a missing column.
    """
    table = _table_name(options)
    if "overwriteschema" in {each.lower() for each in options}:
        raise OptionError(
            f"overwriteSchema is an option of Delta tables: the columns of {table} stay. Use"
            " mergeSchema to add columns, or write a new table"
        )
    found = given_options(options, ICEBERG_OPTIONS)
    given = found.named
    return IcebergOptions(
        TableName(table, given.get("catalog") or DEFAULT_CATALOG, found.prefixed),
        parse_terms(given.get("partitioncolumns", ""), schema.fieldNames()) or None,
        parse_switch("mergeSchema", given.get("mergeschema", "false")),
    )


def _table_name(options: Mapping[str, str]) -> str:
    given = {name.lower(): value.strip() for name, value in options.items()}
    table = given.get("table") or given.get("path", "")
    if "." not in table or "/" in table:
        raise OptionError(
            f"{table!r} names no table of a catalog: write namespace and name, as in"
            " .start('lake.flights')"
        )
    return table
