"""Tables: with headings and colors on a terminal, as tab-separated lines elsewhere.

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


def echo_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, is_described: bool = False
) -> None:
    """Print a table on a terminal, and tab-separated lines elsewhere.

    Columns of numbers are right-aligned. None is shown as "-".

    Args:
        columns: The names of the columns.
        rows: A cell per column.
        is_described: Whether to print the names of the columns elsewhere too. Lists are printed
            without them, because scripts read lists.
    """
    if not sys.stdout.isatty():
        for row in (columns, *rows) if is_described else rows:
            click.echo("\t".join(_words(cell) for cell in row))
        return
    console().print(table(columns, rows))


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


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return the table as an object that rich prints."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
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
