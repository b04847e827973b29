"""A bar of finished files on a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.cli.common.tables import console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.spark.tables.maintenance import Progress


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
