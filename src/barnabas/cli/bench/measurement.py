"""The results of a run: counts, latencies, and a series of short intervals for the plot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.cli.bench.histogram import LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PERCENTILES", "Interval", "Measurement"]

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
