"""Distributions, rates and averages of measured values, like Kafka's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.runtime.clock import Clock

# The percentiles that Kafka reports, as Prometheus quantiles.
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_WINDOW_MS = 30_000.0


def quantiles_of(
    buckets: Mapping[int, int],
    middle_of: Callable[[int], float],
    fractions: Iterable[float] = QUANTILES,
) -> dict[float, float]:
    """Return the value below which each fraction of all values lies; NaN without values.

    Args:
        buckets: number of values by bucket. A higher bucket has larger values.
        middle_of: returns the value that stands for all values of a bucket.
        fractions: the fractions, in ascending order.
    """
    number = sum(buckets.values())
    ordered = iter(sorted(buckets))
    found: dict[float, float] = {}
    seen, bucket = 0, -1
    for fraction in fractions:
        while seen < fraction * number:
            bucket = next(ordered)
            seen += buckets[bucket]
        found[fraction] = middle_of(bucket) if number else math.nan
    return found


class RecentBuckets:
    """Selects the values of the last minute from the buckets of a growing distribution.

    It keeps copies of the buckets that it has seen, at least 30 s apart, so that recording a value
    costs nothing more. A value is recent for 30 to 60 s, as in Kafka's sensors, or until the second
    reading after it if the readings are further apart.
    """

    __slots__ = ("_newer", "_newer_ms", "_older")

    def __init__(self) -> None:
        # The buckets at two earlier readings. Recent values are those after `_older`.
        self._older: Mapping[int, int] = {}
        self._newer: Mapping[int, int] = {}
        # Time of the reading of `_newer` (monotonic, ms).
        self._newer_ms = -math.inf

    def select(self, buckets: Mapping[int, int], now_ms: float) -> dict[int, int]:
        """Return the numbers of recent values by bucket.

        Args:
            buckets: number of all values by bucket. The caller does not change it afterwards.
            now_ms: the monotonic time.
        """
        if now_ms - self._newer_ms >= _WINDOW_MS:
            self._older, self._newer, self._newer_ms = self._newer, buckets, now_ms
        older = self._older
        grown = ((bucket, count - older.get(bucket, 0)) for bucket, count in buckets.items())
        return {bucket: count for bucket, count in grown if count > 0}


_GROWTH = 1.1
_LOG_GROWTH = math.log(_GROWTH)
_PERCENTILES = (("p50", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))


class Histogram:
    """A distribution of numbers that are not negative: count, mean, extremes and percentiles.

    The width of the buckets grows by a tenth from one to the next. A percentile is therefore
    accurate within 5 %, and an update is cheap. Kafka samples the values instead, which costs more
    and loses the tail.
    """

    __slots__ = ("_buckets", "_recent", "count", "largest", "smallest", "total")

    def __init__(self) -> None:
        # Number, sum and limits of all recorded values.
        self.count = 0
        self.total = 0.0
        self.smallest = math.inf
        self.largest = 0.0
        # Bucket -> count. Bucket 0 holds values below 1; bucket n holds growth^(n-1) to growth^n.
        self._buckets: dict[int, int] = {}
        self._recent = RecentBuckets()

    def update(self, value: float) -> None:
        """Record a value."""
        self.count += 1
        self.total += value
        if value < self.smallest:
            self.smallest = value
        if value > self.largest:
            self.largest = value
        bucket = 0 if value < 1.0 else int(math.log(value) / _LOG_GROWTH) + 1
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def percentile(self, fraction: float) -> float:
        """Return the value below which this fraction of all values lies, within 5 %.

        Returns 0 if there are no values.
        """
        if not self.count:
            return 0.0
        return quantiles_of(self._buckets, self._middle_of, (fraction,))[fraction]

    def recent_quantiles(self, now_ms: float) -> dict[float, float]:
        """Return the quantiles of the values of the last minute; NaN if there are no values."""
        return quantiles_of(self._recent.select(self._buckets.copy(), now_ms), self._middle_of)

    def _middle_of(self, bucket: int) -> float:
        middle = 0.5 if bucket == 0 else _GROWTH ** (bucket - 0.5)
        return min(max(middle, self.smallest), self.largest)

    def snapshot(self) -> dict[str, float]:
        """Return the count, mean, extremes and percentiles by name."""
        mean = self.total / self.count if self.count else 0.0
        smallest = self.smallest if self.count else 0.0
        values = {name: self.percentile(fraction) for name, fraction in _PERCENTILES}
        return {"count": self.count, "mean": mean, "min": smallest, "max": self.largest, **values}


_STEP_MS = 5000.0
_STEP_S = 5.0
_MS_PER_S = 1000.0
_MINUTES = (1, 5, 15)
_NAMES = ("one_minute_rate", "five_minute_rate", "fifteen_minute_rate")
_DECAYS = tuple(math.exp(-_STEP_S / 60.0 / minutes) for minutes in _MINUTES)


class Meter:
    """A count of events, and its rates over 1, 5 and 15 minutes, like Kafka's (Yammer) meters.

    The rates are exponentially weighted averages in steps of five seconds. They are brought up to
    date when they are read, so `mark` is only an addition.
    """

    __slots__ = ("_clock", "_rates", "_seen", "_start_ms", "_step_ms", "count")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ms = clock.monotonic_ms()
        # Number of events since the meter was created. Only increases.
        self.count = 0
        # Start of the current step (ms), and the count at that time.
        self._step_ms = self._start_ms
        self._seen = 0
        # The moving averages per second, after the first step; see `rates`.
        self._rates: list[float] | None = None

    def mark(self, amount: int = 1) -> None:
        """Record `amount` events."""
        self.count += amount

    def inc(self, amount: int = 1) -> None:
        """Record `amount` events; the same as `mark`, so callers can hold a Counter or a Meter."""
        self.count += amount

    def mean_rate(self) -> float:
        """Return the rate per second since the meter was created."""
        elapsed_ms = self._clock.monotonic_ms() - self._start_ms
        return self.count * _MS_PER_S / elapsed_ms if elapsed_ms > 0 else 0.0

    def rates(self) -> tuple[float, float, float]:
        """Return the rates per second over one, five and fifteen minutes."""
        self._catch_up()
        one, five, fifteen = self._rates or (0.0, 0.0, 0.0)
        return one, five, fifteen

    def snapshot(self) -> dict[str, float]:
        """Return the count and the rates by name."""
        values = dict(zip(_NAMES, self.rates(), strict=True))
        return {"count": self.count, "mean_rate": self.mean_rate(), **values}

    def _catch_up(self) -> None:
        """Distribute the events since the last update over the steps since then."""
        steps = int((self._clock.monotonic_ms() - self._step_ms) / _STEP_MS)
        if steps == 0:
            return
        self._step_ms += steps * _STEP_MS
        rate = (self.count - self._seen) / (steps * _STEP_S)
        self._seen = self.count
        if self._rates is None:
            self._rates = [rate] * len(_MINUTES)
            return
        for index, decay in enumerate(_DECAYS):
            kept = decay**steps
            self._rates[index] = self._rates[index] * kept + rate * (1.0 - kept)


_WINDOWS = 2


class _Window:
    __slots__ = ("count", "maximum", "start_ms", "total")

    def __init__(self, start_ms: float) -> None:
        # Start of the window (monotonic, ms); then number, sum and maximum of its values.
        self.start_ms = start_ms
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0


class SampledValues:
    """Recorded values of the last minute, in two windows of 30 s, as in Kafka's sensors.

    Old values expire one window at a time.
    """

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        # The newest window is last.
        self._windows: list[_Window] = []

    def record(self, value: float, now_ms: float) -> None:
        """Record a value."""
        windows = self._windows
        if not windows or now_ms - windows[-1].start_ms >= _WINDOW_MS:
            windows.append(_Window(now_ms))
            del windows[:-_WINDOWS]
        window = windows[-1]
        window.count += 1
        window.total += value
        window.maximum = max(window.maximum, value)

    def average(self, now_ms: float) -> float | None:
        """Return the average of the recent values; None if there are no values."""
        kept = self._kept(now_ms)
        count = sum(window.count for window in kept)
        return sum(window.total for window in kept) / count if count else None

    def maximum(self, now_ms: float) -> float | None:
        """Return the largest recent value; None if there are no values."""
        return max((window.maximum for window in self._kept(now_ms)), default=None)

    def rate(self, now_ms: float) -> float:
        """Return the sum of the recent values per second.

        The divisor is at least the length of one window.
        """
        kept = self._kept(now_ms)
        if not kept:
            return 0.0
        elapsed_ms = max(now_ms - kept[0].start_ms, _WINDOW_MS)
        return sum(window.total for window in kept) * _MS_PER_S / elapsed_ms

    def _kept(self, now_ms: float) -> list[_Window]:
        oldest = now_ms - _WINDOWS * _WINDOW_MS
        return [window for window in self._windows if window.start_ms > oldest]
