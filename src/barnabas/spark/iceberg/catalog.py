"""Names an Iceberg table, and finds it in its catalog by `pyiceberg`'s own properties."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.spark.option_values import absolute_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

DEFAULT_CATALOG = "default"
# How long a writer waits for another one that has locked a catalog in SQLite.
_SQLITE_TIMEOUT_S = 60


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

    return load_catalog(name.catalog, **absolute(name.properties))


def open_table(name: TableName) -> Table:
    """Load the current state of a table.

    Raises:
        NoSuchTableError: the catalog has no such table.
    """
    return open_catalog(name).load_table(name.table)


def absolute(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with absolute paths: a process may have another working directory."""
    made = dict(properties)
    warehouse = made.get("warehouse", "")
    # The warehouse of a REST catalog can be any name.
    if warehouse and made.get("uri", "").startswith("sqlite"):
        made["warehouse"] = absolute_address(warehouse)
    scheme, separator, path = made.get("uri", "").partition(":///")
    if separator and scheme.startswith("sqlite"):
        path, question, query = path.partition("?")
        if path and not path.startswith(":"):
            path = os.path.abspath(path)  # noqa: PTH100 - keeps links
        query = query if question else f"timeout={_SQLITE_TIMEOUT_S}"
        made["uri"] = f"{scheme}:///{path}?{query}"
    return made
