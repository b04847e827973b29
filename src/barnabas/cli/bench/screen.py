"""The display of a running load and of its result: numbers, and a plot of the rate over time."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.cli.common.tables import bad, echo_line, echo_table, strong, table
from barnabas.cli.common.units import amount, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType

    from barnabas.cli.bench.measurement import Measurement

__all__ = ["displayed", "echo_result", "plot"]

_HEIGHT = 6
# Fill levels of a cell, from empty to full.
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LABEL_WIDTH = 7
_WIDTH_MIN = 10
# Columns of the latency table, in ms.
_LATENCY_COLUMNS = ("mean", "p50", "p95", "p99", "p99.9", "max")


def plot(values: Sequence[float], width: int, height: int = _HEIGHT) -> list[str]:
    """Return the lines of a bar chart, with the scale on the left.

    Args:
        values: Numbers that are not negative, oldest first. If there are more values than columns,
            neighbors are averaged.
        width: Width of a line in cells.
        height: Number of lines.
    """
    columns = max(_WIDTH_MIN, width - _LABEL_WIDTH - 2)
    shown = _averaged(values, columns)
    top = max(shown, default=0.0) or 1.0
    eighths = [round(value / top * height * 8) for value in shown]
    lines = []
    for row in range(height - 1, -1, -1):
        label = amount(top) if row == height - 1 else "0" if row == 0 else ""
        cells = "".join(_BLOCKS[min(max(each - row * 8, 0), 8)] for each in eighths)
        lines.append(f"{label:>{_LABEL_WIDTH}} │{cells}")
    return lines


def _averaged(values: Sequence[float], columns: int) -> list[float]:
    """Return at most `columns` values, each the mean of an equal number of neighbors."""
    together = -(-len(values) // columns)
    if together <= 1:
        return list(values)
    groups = [values[at : at + together] for at in range(0, len(values), together)]
    return [sum(group) / len(group) for group in groups]


def render(title: str, found: Measurement, width: int, *, live: bool) -> RenderableType:
    """Return the display of a load: a heading, numbers, and the rate over time.

    Args:
        title: The name of the load.
        found: The results so far.
        width: Width of the terminal in cells.
        live: Whether the heading shows the rate of the last interval instead of the whole run.
    """
    from rich.console import Group
    from rich.text import Text

    rate = found.intervals[-1].rate if live and found.intervals else found.rate
    head = Text.assemble(
        (title, "bold"),
        f"\n{found.seconds:.1f} s  {found.records:,} records  ",
        (f"{amount(rate)} records/s", "bold cyan"),
        f"  {size(found.size_rate)}/s",
        ("   Ctrl-C ends" if live else "", "dim"),
    )
    if found.failed:
        head.append(f"  {found.failed} failed", "bold red")
    lines = "\n".join(plot([each.rate for each in found.intervals], width))
    parts: list[RenderableType] = [
        head,
        Text(""),
        table(_columns(), [_latency_row(found)]),
        Text(""),
        Text("records/s over time", style="dim"),
        Text(lines, style="cyan", no_wrap=True, overflow="crop"),
    ]
    return Group(*parts)


def _columns() -> list[str]:
    return [f"{name} ms" for name in _LATENCY_COLUMNS]


def _latency_row(found: Measurement) -> list[str]:
    return [_milliseconds(value) for value in found.latencies_ms().values()]


def _milliseconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


@contextmanager
def displayed(title: str, *, visible: bool) -> Iterator[Callable[[Measurement], None]]:
    """Show a live display of a load on standard error during the block, if it is a terminal.

    Yields:
        A function that must be called with the measurement after each update.
    """
    if not visible or not sys.stderr.isatty():
        yield lambda _found: None
        return
    from rich.live import Live

    from barnabas.cli.common.tables import console

    screen = console(stderr=True)
    with Live(console=screen, auto_refresh=False, transient=True) as live:
        yield lambda found: live.update(render(title, found, screen.width, live=True), refresh=True)


def echo_result(title: str, found: Measurement) -> None:
    """Print the results of a load: with a plot on a terminal, as tab-separated lines elsewhere."""
    if sys.stdout.isatty():
        from barnabas.cli.common.tables import console

        screen = console()
        screen.print(render(title, found, screen.width, live=False))
    else:
        rows: list[tuple[str, object]] = [
            ("records", found.records),
            ("seconds", f"{found.seconds:.3f}"),
            ("records/s", f"{found.rate:.1f}"),
            ("MB/s", f"{found.size_rate / 1e6:.3f}"),
            ("failed", found.failed),
        ]
        names = (f"latency {name} ms" for name in _LATENCY_COLUMNS)
        figures = found.latencies_ms().values()
        rows += [(name, f"{value:.3f}") for name, value in zip(names, figures, strict=True)]
        echo_table(("figure", "value"), rows)
    if found.failed:
        echo_line(bad(f"{found.failed} records failed"), ": ", strong(found.error))
