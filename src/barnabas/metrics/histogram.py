"""A distribution of sizes or times: count, mean, extremes and percentiles.

Values fall into buckets that grow by about a tenth, so that a percentile is right within 5 % and
an update is two additions; Kafka samples instead, which costs more and forgets the tail.
"""

from __future__ import annotations

import math

_GROWTH = 1.1
_LOG_GROWTH = math.log(_GROWTH)
_PERCENTILES = (("p50", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))


class Histogram:
    """Numbers from 0 on."""

    __slots__ = ("_buckets", "count", "largest", "smallest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.smallest = math.inf
        self.largest = 0.0
        # Counts by bucket; bucket 0 is below 1, bucket n from growth^(n-1) to growth^n.
        self._buckets: dict[int, int] = {}

    def update(self, value: float) -> None:
        """Count a value."""
        self.count += 1
        self.total += value
        if value < self.smallest:
            self.smallest = value
        if value > self.largest:
            self.largest = value
        bucket = 0 if value < 1.0 else int(math.log(value) / _LOG_GROWTH) + 1
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def percentile(self, fraction: float) -> float:
        """The value below which that fraction of all values lies, within 5 %; 0 without values."""
        rank = fraction * self.count
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                middle = 0.5 if bucket == 0 else _GROWTH ** (bucket - 0.5)
                return min(max(middle, self.smallest), self.largest)
        return 0.0

    def snapshot(self) -> dict[str, float]:
        """Count, mean, extremes, percentiles."""
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
