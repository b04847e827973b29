"""`barnabas tables`: compact small files, expire old snapshots, show the state of tables."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.output import (
    echo_json,
    fail,
    json_option,
    key_values,
    moment_ms,
    option_record,
    warning,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import console
from barnabas.cli.common.units import duration_ms, size_bytes, utc_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.spark.tables.maintenance import (
        Compaction,
        Expiry,
        MaintainedTable,
        Progress,
        TableStatus,
    )


EXAMPLES = """\b
Examples:
  barnabas tables status /data/flights
  barnabas tables compact /data/flights
  barnabas tables expire /data/flights                      show what would be removed
  barnabas tables expire /data/flights --older-than 3d --execute
  barnabas tables compact lake.flights -c uri=sqlite:////data/catalog.db
  barnabas tables status lake.flights -c uri=https://catalog.example -c token=...

\b
TABLE is the directory or address of a Delta table, or the name of an Iceberg table in a catalog.
Streams may write the table meanwhile. A command that was killed is run again.
"""
STATUS_EXAMPLES = """\b
Examples:
  barnabas tables status /data/flights
  barnabas tables status lake.flights --catalog prod --json
"""
COMPACT_EXAMPLES = """\b
Examples:
  barnabas tables compact /data/flights
  barnabas tables compact s3://lake/flights --storage aws_region=eu-central-1
  barnabas tables compact lake.flights -c uri=sqlite:////data/catalog.db --target-size 256MiB

\b
Rows do not change. The replaced files stay until `barnabas tables expire` removes them.
"""
EXPIRE_EXAMPLES = """\b
Examples:
  barnabas tables expire /data/flights                      show what would be removed
  barnabas tables expire /data/flights --execute
  barnabas tables expire lake.flights -c uri=sqlite:////data/catalog.db --older-than 1d --execute

\b
Removes snapshots of Iceberg tables and the files of old versions of Delta tables, and files that
no snapshot names: of killed tasks, for instance. The current rows stay. Reads of an older snapshot
fail afterwards, and a batch must not take longer. Delta tables count in whole hours.
"""
_HOUR_MS = 3_600_000


class _Target(NamedTuple):
    """The table that the options of each command name."""

    table: str
    catalog: str | None
    catalog_properties: Sequence[str]
    storage: Sequence[str]

    def open(self) -> MaintainedTable:
        """Return the table. A catalog or its properties stand for Iceberg."""
        in_catalog = self.catalog is not None or bool(self.catalog_properties)
        if in_catalog and self.storage:
            raise click.UsageError("--storage is for Delta tables: an Iceberg table has a catalog")
        if in_catalog:
            from barnabas.spark.iceberg.catalog import DEFAULT_CATALOG, TableName
            from barnabas.spark.iceberg.maintenance import MaintainedIceberg

            properties = key_values(self.catalog_properties, "--catalog-property")
            name = TableName(self.table, self.catalog or DEFAULT_CATALOG, properties)
            return MaintainedIceberg(name)
        from barnabas.spark.delta.maintenance import MaintainedDelta
        from barnabas.spark.delta.options import DeltaOptions
        from barnabas.spark.option_table import absolute_address

        storage = key_values(self.storage, "--storage")
        return MaintainedDelta(DeltaOptions(absolute_address(self.table), storage=storage))


# The options of each command.
table_options = option_record(
    "target",
    _Target,
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


def parse_size(_ctx: click.Context, _parameter: click.Parameter, text: str) -> int:
    """Return the bytes of a size such as 128MiB."""
    size = size_bytes(text)
    if not size:
        raise click.BadParameter("write a size such as 128MiB")
    return size


target_option = click.option(
    "--target-size",
    "target_bytes",
    default="128MiB",
    show_default=True,
    metavar="SIZE",
    callback=parse_size,
    help="Size of a full file; files below three quarters of it are small.",
)


@click.group(epilog=EXAMPLES)
def tables() -> None:
    """Maintain tables of Delta and Iceberg, also while streams write them."""


@tables.command("status", epilog=STATUS_EXAMPLES)
@table_options
@target_option
def status(target: _Target, as_json: bool, target_bytes: int) -> None:
    """Show rows, files, small files and snapshots of a table, and the queries that wrote it."""
    with reported():
        found = target.open().status(target_bytes)
    if as_json:
        echo_json(_status_json(found))
        return
    oldest = "" if found.oldest_ms is None else f", the oldest of {utc_text(found.oldest_ms)}"
    noun = "versions" if found.kind == "delta" else "snapshots"
    echo(f"{found.kind} table, {found.rows:,} rows")
    echo(f"{found.files:,} files, {found.size:,} bytes, {found.small_files:,} small files")
    echo(f"{found.snapshots:,} {noun}{oldest}")
    for query, batch in sorted(found.queries.items()):
        echo(f"query {query}: batch {batch}")


@tables.command("compact", epilog=COMPACT_EXAMPLES)
@table_options
@target_option
def compact(target: _Target, as_json: bool, target_bytes: int) -> None:
    """Replace small files by files of about the target size."""
    with reported(), shown_progress("rewritten") as progress:
        maintained = target.open()
        done = maintained.compact(target_bytes, progress)
    if as_json:
        echo_json(_compaction_json(done))
        return
    if done.removed_files:
        echo(f"replaced {done.removed_files:,} files by {done.added_files:,}")
    else:
        echo("nothing to compact")
    for reason, count in done.skipped.items():
        warning(f"{count:,} small files were left: each {reason}")
    if done.lost_files:
        warning(
            f"{done.lost_files:,} small files were left: another writer changed them meanwhile."
            " Run the command again"
        )


@tables.command("expire", epilog=EXPIRE_EXAMPLES)
@table_options
@click.option(
    "--older-than",
    default="7d",
    show_default=True,
    metavar="AGE|TIME",
    help="What is older than this is removed: an age such as 3d, or a time.",
)
@click.option(
    "--allow-recent",
    is_flag=True,
    help="Accept less than an hour: whatever is written or read meanwhile can lose files.",
)
@click.option("--execute", is_flag=True, help="Remove what was found.")
def expire(
    target: _Target, as_json: bool, older_than: str, allow_recent: bool, execute: bool
) -> None:
    """Remove old snapshots, and files that no snapshot names."""
    now_ms = int(time.time() * 1000)
    age_ms = duration_ms(older_than)
    before_ms = moment_ms(older_than, "--older-than") if age_ms is None else now_ms - age_ms
    if now_ms - before_ms < _HOUR_MS and not allow_recent:
        raise click.UsageError(
            f"--older-than {older_than}: at least 1h, as batches that are being written have such"
            " files too. Use --allow-recent if no batch takes that long, and no reader either"
        )
    with reported(), shown_progress("removed") as progress:
        maintained = target.open()
        found = maintained.expire(before_ms, execute=execute, progress=progress)
    if as_json:
        echo_json(_expiry_json(found, executed=execute))
        return
    verb = "removed" if execute else "would remove"
    snapshots = f"{len(found.snapshots):,} snapshots and " if found.snapshots else ""
    echo(f"{verb} {snapshots}{len(found.files):,} files")
    if not execute:
        echo("nothing was changed; use --execute to remove them", err=True)


def _status_json(found: TableStatus) -> dict[str, object]:
    return {
        "kind": found.kind,
        "snapshot": found.snapshot,
        "rows": found.rows,
        "files": found.files,
        "bytes": found.size,
        "small_files": found.small_files,
        "snapshots": found.snapshots,
        "oldest": None if found.oldest_ms is None else utc_text(found.oldest_ms),
        "queries": dict(found.queries),
    }


def _compaction_json(done: Compaction) -> dict[str, object]:
    return {
        "removed_files": done.removed_files,
        "added_files": done.added_files,
        "lost_files": done.lost_files,
        "skipped": dict(done.skipped),
    }


def _expiry_json(found: Expiry, *, executed: bool) -> dict[str, object]:
    return {"executed": executed, "snapshots": list(found.snapshots), "files": list(found.files)}


@contextmanager
def reported() -> Iterator[None]:
    """Print the errors of tables and their catalogs, and exit."""
    try:
        yield
    except ModuleNotFoundError as error:
        fail(f"{error}: install Barnabas with its extra delta or iceberg")
    except (click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:  # noqa: BLE001 - libraries of catalogs and stores have many kinds
        fail(str(error) or type(error).__name__)


@contextmanager
def shown_progress(action: str) -> Iterator[Progress]:
    """Yield a function that shows how many files are done, on standard error if it is a terminal.

    Args:
        action: what is done with the files.
    """
    output = console(stderr=True) if sys.stderr.isatty() else None
    if output is None or output.is_dumb_terminal:
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TextColumn

    with Bar(
        TextColumn(action),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files"),
        console=output,
        transient=True,
    ) as bar:
        task = bar.add_task(action, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
