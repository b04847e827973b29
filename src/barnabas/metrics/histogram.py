"""A distribution of sizes or times: count, mean, extremes and percentiles.

The width of the buckets grows by a tenth from one to the next. A percentile is therefore accurate
within 5 %, and an update is cheap. Kafka samples the values instead, which costs more and loses the
tail.
"""

from __future__ import annotations

import math

_GROWTH = 1.1
_LOG_GROWTH = math.log(_GROWTH)
_PERCENTILES = (("p50", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))


class Histogram:
    """A distribution of numbers that are not negative."""

    __slots__ = ("_buckets", "count", "largest", "smallest", "total")

    def __init__(self) -> None:
        # Number, sum and limits of all recorded values.
        self.count = 0
        self.total = 0.0
        self.smallest = math.inf
        self.largest = 0.0
        # Bucket -> count. Bucket 0 holds values below 1; bucket n holds growth^(n-1) to growth^n.
        self._buckets: dict[int, int] = {}

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
        rank = fraction * self.count
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                middle = 0.5 if bucket == 0 else _GROWTH ** (bucket - 0.5)
                return min(max(middle, self.smallest), self.largest)
        return 0.0

    def snapshot(self) -> dict[str, float]:
        """Return the count, mean, extremes and percentiles by name."""
        mean = self.total / self.count if self.count else 0.0
        smallest = self.smallest if self.count else 0.0
        values = {name: self.percentile(fraction) for name, fraction in _PERCENTILES}
        return {
            "count": self.count,
            "mean": mean,
            "min": smallest,
            "max": self.largest,
            **values,
        }
