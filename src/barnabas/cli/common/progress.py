"""A progress bar of a command that works through a number of things."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress

BYTES = "bytes"
# The bar appears after this time. A bar that is removed at once would leave an empty line.
_APPEARS_AFTER_S = 0.5


@contextmanager
def progress(
    unit: str, total: Callable[[], int | None] = lambda: None
) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar, which is only shown on a terminal.

    Any thread may call the function.

    Args:
        unit: What is counted; `BYTES` are shown as sizes.
        total: Called once if the bar is shown. Returns how many there are; None if this is not
            known.
    """
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    bar = _Bar(unit, total)
    try:
        yield bar.advance
    finally:
        bar.remove()


class _Bar:
    """A bar that appears when the work has taken some time."""

    def __init__(self, unit: str, total: Callable[[], int | None]) -> None:
        self._unit = unit
        self._total = total
        self._begun_s = time.monotonic()
        self._lock = threading.Lock()
        # What was counted before the bar appears.
        self._early = 0
        # None before it appears.
        self._shown: Progress | None = None

    def advance(self, count: int) -> None:
        """Count."""
        with self._lock:
            if self._shown is not None:
                self._shown.advance(self._shown.task_ids[0], count)
                return
            self._early += count
            if time.monotonic() - self._begun_s >= _APPEARS_AFTER_S:
                self._shown = self._appear()

    def remove(self) -> None:
        """Remove the bar from the terminal."""
        if self._shown is not None:
            self._shown.stop()

    def _appear(self) -> Progress:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        from barnabas.cli.common.tables import console

        amount = DownloadColumn() if self._unit == BYTES else MofNCompleteColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
        shown = Progress(*columns, console=console(stderr=True), transient=True)
        shown.add_task(self._unit, total=self._total(), completed=self._early)
        shown.start()
        return shown
