"""Progress of `consume` and `produce` on standard error, if that is a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from barnabas.cli.common.printable import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress as Bar, TaskID

__all__ = ["Progress", "progress", "summary_line"]

_SHOWN_EVERY_S = 0.1


class Progress:
    """A counter of records and bytes that displays nothing."""

    def __init__(self) -> None:
        self.records = 0
        # Bytes.
        self.size = 0
        self.started_s = time.monotonic()

    def advance(self, records: int, size: int) -> None:
        """Count records and their bytes."""
        self.records += records
        self.size += size

    def __str__(self) -> str:
        return summary_line(self.records, self.size, time.monotonic() - self.started_s)


class _ShownProgress(Progress):
    """A counter that also displays a line and a bar, relative to the total records or bytes."""

    def __init__(self, bar: Bar, task: TaskID, *, bytes_count: bool) -> None:
        super().__init__()
        self._bar = bar
        self._task = task
        self._bytes_count = bytes_count
        self._shown_s = 0.0

    def advance(self, records: int, size: int) -> None:
        super().advance(records, size)
        now = time.monotonic()
        if now - self._shown_s >= _SHOWN_EVERY_S:
            self._shown_s = now
            done = self.size if self._bytes_count else self.records
            self._bar.update(self._task, completed=done, passed=str(self))


@contextlib.contextmanager
def progress(
    *, visible: bool, records: int | None = None, size: int | None = None
) -> Iterator[Progress]:
    """Yield a counter; display it during the block if standard error is a terminal.

    Args:
        visible: Whether to display it. False if the line would mix with the output.
        records: The expected number of records, if it is known.
        size: The expected number of bytes, if it is known.
    """
    if not visible or not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress as Bar, TextColumn

    columns = (BarColumn(), TextColumn("{task.fields[passed]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("records", total=size or records or None, passed="")
        yield _ShownProgress(bar, task, bytes_count=bool(size))


def summary_line(records: int, size: int, seconds: float) -> str:
    """Return the records, bytes and rate as text."""
    rate = records / seconds if seconds > 0 else 0.0
    amount = f"{counted(records, 'record')}, {size / 1e6:,.1f} MB"
    return f"{amount} in {seconds:.1f} s, {rate:,.0f} records/s"
