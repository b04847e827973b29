"""The load of a run, and its result: counts, latencies, and a plot of the rate.

Latencies are counted in a histogram with a relative error under 2 %, in bounded memory. Each value
below 128 has its own counter. Above 128, every power of two is divided into 64 equal steps. This is
the layout of HdrHistogram with two digits. The library of that name is not used, because it is a
compiled dependency for a few lines of code.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.cli.common.tables import bad, console, echo_line, echo_table, strong, table
from barnabas.cli.common.units import amount, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType

PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}
_INTERVAL_S = 0.5
# At this number of intervals (even), pairs are merged, which bounds the memory of long runs.
_INTERVALS_MAX = 600


class Interval(NamedTuple):
    """A part of the run."""

    # Time from the start of the run to the end of the interval (s).
    end_s: float
    seconds: float
    records: int
    p99_us: int

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds if self.seconds else 0.0


class Load(NamedTuple):
    """The load that the command line requests."""

    # End after this number of records; None: no limit.
    records_max: int | None
    # End after this number of seconds; None: no limit.
    seconds_max: float | None
    # Records per second; None for as fast as possible.
    rate: float | None
    # Size of a value in bytes.
    record_size: int
    # Number of different keys; 0 for no keys.
    keys: int


class Measurement:
    """Counts records and their latencies while a load runs.

    Args:
        on_interval: Called after each interval, to update a display.
    """

    def __init__(self, on_interval: Callable[[Measurement], None] = lambda _found: None) -> None:
        self._on_interval = on_interval
        self.records = 0
        # Size of the keys and values in bytes.
        self.size_bytes = 0
        # Number of records that were not delivered, and the error of the first of them.
        self.failed = 0
        self.error: str | None = None
        self.latencies = LatencyHistogram()
        self.intervals: list[Interval] = []
        self._recent = LatencyHistogram()
        self._recent_records = 0
        self._interval_s = _INTERVAL_S
        self.started_s = time.perf_counter()
        # End of the last interval (s).
        self._last_s = self.started_s
        self._ended_s: float | None = None

    def start(self) -> None:
        """Start the measurement; earlier work, such as connecting, does not count."""
        self.started_s = self._last_s = time.perf_counter()

    def add(self, records: int, size_bytes: int, latency_us: int, samples: int = 1) -> None:
        """Count records that arrived.

        Args:
            records: Number of records.
            size_bytes: Size of their keys and values in bytes.
            latency_us: Latency of each sample (µs).
            samples: Number of latency samples: one per record, or one for a whole poll.
        """
        self.records += records
        self.size_bytes += size_bytes
        self._recent_records += records
        self.latencies.record(latency_us, samples)
        self._recent.record(latency_us, samples)

    def fail(self, error: Exception) -> None:
        """Count a record that was not delivered."""
        self.failed += 1
        if self.error is None:
            self.error = str(error)

    def maybe_end_interval(self) -> None:
        """End the interval if its time has passed; must be called often."""
        now = time.perf_counter()
        if now - self._last_s >= self._interval_s:
            self._end_interval(now)

    def _end_interval(self, now: float) -> None:
        p99 = self._recent.percentile_us(99)
        seconds = now - self._last_s
        self.intervals.append(Interval(now - self.started_s, seconds, self._recent_records, p99))
        self._recent.clear()
        self._recent_records = 0
        self._last_s = now
        if len(self.intervals) == _INTERVALS_MAX:
            self._interval_s *= 2
            pairs = zip(self.intervals[::2], self.intervals[1::2], strict=False)
            self.intervals = [_joined(first, second) for first, second in pairs]
        self._on_interval(self)

    def end(self) -> None:
        """End the measurement; later time does not count."""
        self._ended_s = time.perf_counter()
        if self._recent_records or not self.intervals:
            self._end_interval(self._ended_s)

    @property
    def seconds(self) -> float:
        """Duration of the run, until now or until its end."""
        end = time.perf_counter() if self._ended_s is None else self._ended_s
        return end - self.started_s

    @property
    def rate(self) -> float:
        """Records per second of the whole run."""
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def size_rate(self) -> float:
        """Bytes per second of the whole run."""
        return self.size_bytes / self.seconds if self.seconds > 0 else 0.0

    def latencies_ms(self) -> dict[str, float]:
        """Return the mean, percentiles and maximum, in milliseconds."""
        found = {"mean": self.latencies.mean_us}
        for name, percent in PERCENTILES.items():
            found[name] = self.latencies.percentile_us(percent)
        found["max"] = self.latencies.max_us
        return {name: round(value / 1000, 3) for name, value in found.items()}

    def as_json(self) -> dict[str, Any]:
        """Return all results of the run."""
        return {
            "records": self.records,
            "bytes": self.size_bytes,
            "seconds": round(self.seconds, 3),
            "records_per_s": round(self.rate, 1),
            "bytes_per_s": round(self.size_rate, 1),
            "failed": self.failed,
            "error": self.error,
            "latency_ms": self.latencies_ms(),
            "intervals": [
                {
                    "end_s": round(each.end_s, 3),
                    "records_per_s": round(each.rate, 1),
                    "p99_ms": round(each.p99_us / 1000, 3),
                }
                for each in self.intervals
            ],
        }


def _joined(first: Interval, second: Interval) -> Interval:
    """Merge two intervals. The percentile of the result is the larger of the two."""
    return Interval(
        second.end_s,
        first.seconds + second.seconds,
        first.records + second.records,
        max(first.p99_us, second.p99_us),
    )


_EXACT_BITS = 7
_EXACT = 1 << _EXACT_BITS
_STEPS = _EXACT >> 1
# 2**37 microseconds are 38 hours. Longer latencies count as this value.
_BITS_MAX = 37
_SIZE = _EXACT + (_BITS_MAX - _EXACT_BITS) * _STEPS


class LatencyHistogram:
    """A histogram of latencies in microseconds."""

    __slots__ = ("_counts", "_total_us", "count", "max_us")

    def __init__(self) -> None:
        self._counts = [0] * _SIZE
        self._total_us = 0
        self.count = 0
        # The exact largest latency (µs); 0 before the first.
        self.max_us = 0

    def record(self, latency_us: int, times: int = 1) -> None:
        """Record a latency. A negative one (the clock was set back) counts as 0."""
        latency_us = max(latency_us, 0)
        self._counts[_index(latency_us)] += times
        self._total_us += latency_us * times
        self.count += times
        self.max_us = max(self.max_us, latency_us)

    @property
    def mean_us(self) -> float:
        """The mean latency; 0 without latencies."""
        return self._total_us / self.count if self.count else 0.0

    def percentile_us(self, percent: float) -> int:
        """Return the latency that `percent` percent of all latencies do not exceed.

        The result is the upper end of a step, but never above the maximum. It is 0 without
        latencies.
        """
        assert 0 <= percent <= 100, percent
        # At least one, and rounded up, so that 99 % of three latencies are all three.
        wanted = max(1, -int(-self.count * percent // 100))
        seen = 0
        for index, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(_upper(index), self.max_us)
        return 0

    def clear(self) -> None:
        """Remove all latencies."""
        self._counts = [0] * _SIZE
        self._total_us = self.count = self.max_us = 0


def _index(value: int) -> int:
    if value < _EXACT:
        return value
    shift = value.bit_length() - _EXACT_BITS
    index = _EXACT + (shift - 1) * _STEPS + (value >> shift) - _STEPS
    return min(index, _SIZE - 1)


def _upper(index: int) -> int:
    if index < _EXACT:
        return index
    shift, step = divmod(index - _EXACT, _STEPS)
    return ((step + _STEPS + 1) << (shift + 1)) - 1


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
        table(
            [f"{name} ms" for name in _LATENCY_COLUMNS],
            [[_milliseconds(value) for value in found.latencies_ms().values()]],
        ),
        Text(""),
        Text("records/s over time", style="dim"),
        Text(lines, style="cyan", no_wrap=True, overflow="crop"),
    ]
    return Group(*parts)


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

    screen = console(stderr=True)
    with Live(console=screen, auto_refresh=False, transient=True) as live:
        yield lambda found: live.update(render(title, found, screen.width, live=True), refresh=True)


def echo_result(title: str, found: Measurement) -> None:
    """Print the results of a load: with a plot on a terminal, as tab-separated lines elsewhere."""
    if sys.stdout.isatty():
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
