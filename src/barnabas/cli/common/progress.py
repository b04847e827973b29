"""A progress bar of a command that works through a number of things."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BYTES = "bytes"


@contextmanager
def progress(
    unit: str, total: Callable[[], int | None] = lambda: None
) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar, which is only shown on a terminal.

    Args:
        unit: What is counted; `BYTES` are shown as sizes.
        total: Called once if the bar is shown. Returns how many there are; None if this is not
            known.
    """
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from barnabas.cli.common.tables import console

    amount = DownloadColumn() if unit == BYTES else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as shown:
        task = shown.add_task(unit, total=total())
        yield lambda count: shown.update(task, advance=count)
