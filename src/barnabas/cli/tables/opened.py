"""What the commands of `barnabas tables` share: the table that options name, and its errors."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.common.output import EXIT_FAILED, json_option, key_values, problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.spark.tables.maintenance import MaintainedTable

F = TypeVar("F", bound="Callable[..., Any]")

_OPTIONS = (
    click.argument("table", metavar="TABLE"),
    click.option(
        "-c",
        "--catalog-property",
        "catalog_properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="TABLE is an Iceberg table. A property of its catalog, such as uri; may be repeated.",
    ),
    click.option(
        "--catalog",
        metavar="NAME",
        help="TABLE is an Iceberg table. The name of its catalog.  [default: default]",
    ),
    click.option(
        "--storage",
        multiple=True,
        metavar="KEY=VALUE",
        help="TABLE is a Delta table. A setting of its object store; may be repeated.",
    ),
    json_option(),
)


def table_options(command: F) -> F:
    """Add the options of each command; they arrive as `opened` takes them, and as `as_json`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def opened(
    table: str, catalog: str | None, catalog_properties: Sequence[str], storage: Sequence[str]
) -> MaintainedTable:
    """Return the table. A catalog or its properties stand for Iceberg."""
    in_catalog = catalog is not None or bool(catalog_properties)
    if in_catalog and storage:
        raise click.UsageError("--storage is for Delta tables: an Iceberg table has a catalog")
    if in_catalog:
        from barnabas.spark.iceberg.catalog import DEFAULT_CATALOG, TableName
        from barnabas.spark.iceberg.maintenance import MaintainedIceberg

        properties = key_values(catalog_properties, "--catalog-property")
        return MaintainedIceberg(TableName(table, catalog or DEFAULT_CATALOG, properties))
    from barnabas.spark.delta.maintenance import MaintainedDelta
    from barnabas.spark.delta.options import DeltaOptions
    from barnabas.spark.option_table import absolute_address

    address = absolute_address(table)
    return MaintainedDelta(DeltaOptions(address, storage=key_values(storage, "--storage")))


@contextmanager
def reported() -> Iterator[None]:
    """Print the errors of tables and their catalogs, and exit."""
    try:
        yield
    except ModuleNotFoundError as error:
        problem(f"{error}: install Barnabas with its extra delta or iceberg")
        sys.exit(EXIT_FAILED)
    except (click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:  # noqa: BLE001 - libraries of catalogs and stores have many kinds
        problem(str(error) or type(error).__name__)
        sys.exit(EXIT_FAILED)
