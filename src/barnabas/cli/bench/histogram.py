"""A histogram of latencies with a relative error under 2 %, in bounded memory.

Each value below 128 has its own counter. Above 128, every power of two is divided into 64 equal
steps. This is the layout of HdrHistogram with two digits. The library of that name is not used,
because it is a compiled dependency for a few lines of code.
"""

from __future__ import annotations

__all__ = ["LatencyHistogram"]

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
