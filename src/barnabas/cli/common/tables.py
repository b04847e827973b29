"""Tables: aligned and with colors on a terminal, as tab-separated lines elsewhere.

Rich is imported only for a terminal. NO_COLOR is respected.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.printable import echo, printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

# Numbers with a unit, lists of numbers, and "-" are right-aligned.
_QUANTITY = re.compile(r"[-+]?[\d.,]*(?: ?(?:[kKMGT]i?)?B?| (?:%|ms|s|min|h|d))|-")

_NO_HEADER_KEY = "barnabas.no_header"


class Styled(NamedTuple):
    """Text with a color, for output that supports colors."""

    text: object
    style: str

    def __str__(self) -> str:
        return "-" if self.text is None else str(self.text)


def good(text: object) -> Styled:
    """Mark text as a good state."""
    return Styled(text, "green")


def warn(text: object) -> Styled:
    """Mark text as a warning."""
    return Styled(text, "yellow")


def bad(text: object) -> Styled:
    """Mark text as an error."""
    return Styled(text, "red")


def dim(text: object) -> Styled:
    """Mark text as less important."""
    return Styled(text, "dim")


def strong(text: object) -> Styled:
    """Mark text as a heading."""
    return Styled(text, "bold")


def _drop_header(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    ctx.meta[_NO_HEADER_KEY] = value


# The command does not get this option: `echo_table` reads it from the context.
header_option = click.option(
    "--no-header",
    is_flag=True,
    expose_value=False,
    callback=_drop_header,
    help="Do not print the names of the columns.",
)


def echo_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on a terminal, and tab-separated lines elsewhere.

    The first line has the names of the columns, unless --no-header is given. Columns of numbers are
    right-aligned. None is shown as "-". Elsewhere, nothing is printed for a table without rows.

    Args:
        columns: The names of the columns.
        rows: A cell per column.
    """
    ctx = click.get_current_context(silent=True)
    with_header = ctx is None or not ctx.meta.get(_NO_HEADER_KEY)
    if not sys.stdout.isatty():
        for row in (columns, *rows) if with_header and rows else rows:
            click.echo("\t".join(_words(cell) for cell in row))
        return
    console().print(table(columns, rows, with_header=with_header))


def echo_line(*parts: object) -> None:
    """Print a line of text, whose parts may have colors."""
    if not sys.stdout.isatty():
        echo("".join(map(str, parts)))
        return
    from rich.text import Text

    pieces = [
        (printable_lines(str(part)), part.style)
        if isinstance(part, Styled)
        else printable_lines(str(part))
        for part in parts
    ]
    console().print(Text.assemble(*pieces))


def echo_entry(mark: Styled, text: str, remedy: str = "") -> None:
    """Print a finding: a marking word, the text, and a remedy on its own line."""
    if not sys.stdout.isatty():
        echo(f"{mark!s:<7}{text}" + (f"\n       → {remedy}" if remedy else ""))
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=5)
    grid.add_column(overflow="fold")
    grid.add_row(Text(_words(mark), style=mark.style), Text(printable_lines(text)))
    if remedy:
        grid.add_row("", Text.assemble(("→ ", "dim"), (printable_lines(remedy), "italic")))
    console().print(grid)


def console(*, stderr: bool = False) -> Console:
    """Return a rich console for the terminal."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, no_color="NO_COLOR" in os.environ or None)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, with_header: bool = True
) -> Table:
    """Return the table as an object that rich prints."""
    from rich.table import Table
    from rich.text import Text

    made = Table(
        box=None,
        show_header=with_header,
        header_style="bold",
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for index, name in enumerate(columns):
        right = bool(rows) and all(_is_number(row[index]) for row in rows)
        made.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        made.add_row(
            *(
                Text(_words(cell), style=cell.style if isinstance(cell, Styled) else "")
                for cell in row
            )
        )
    return made


def _words(cell: object) -> str:
    """Return the text of a cell on one line."""
    return "-" if cell is None else printable(str(cell))


def _is_number(cell: object) -> bool:
    value = cell.text if isinstance(cell, Styled) else cell
    if isinstance(value, str):
        return _QUANTITY.fullmatch(value) is not None
    return value is None or isinstance(value, int | float)
