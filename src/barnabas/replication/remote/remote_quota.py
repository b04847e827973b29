"""Limits on the bytes that a broker copies to the remote tier, and reads from it (KIP-956).

Kafka's RLMQuotaManager. A copy waits while the recent rate is above the limit, and a fetch of
consumers gets no remote records meanwhile. A copy counts its whole segment before it starts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from barnabas.replication.config import UNLIMITED
from barnabas.replication.replication_throttle import SampledRate

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock

_MS_PER_S = 1000.0
# Kafka's sensors keep two samples of 30 s.
_SAMPLE_MS = 30_000.0


class ThrottleTimes(NamedTuple):
    """How long works waited for the quota lately, in ms; NaN if none has waited."""

    average: float
    largest: float


class _Sample:
    """The waits that began in one period."""

    __slots__ = ("count", "largest", "start_ms", "total")

    def __init__(self, start_ms: float) -> None:
        self.start_ms = start_ms
        self.count = 0
        self.total = 0.0
        self.largest = 0.0


class RemoteQuota:
    """The rate of copies, or of reads, with its limit."""

    __slots__ = ("_clock", "_newer", "_older", "byte_rate", "bytes_per_second", "record")

    def __init__(
        self, clock: Clock, bytes_per_second: int, window_count: int, window_s: float
    ) -> None:
        """Create without traffic.

        Args:
            clock: measures the windows.
            bytes_per_second: the limit; the largest 64-bit number for none.
            window_count: number of windows of which the rate is the average.
            window_s: length of a window, in seconds.
        """
        self._clock = clock
        # The limit. Set when the dynamic configuration changes.
        self.bytes_per_second = bytes_per_second
        # `record` counts bytes, `byte_rate` is the rate in bytes per second.
        rate = SampledRate(clock, window_count, window_s * _MS_PER_S)
        self.record = rate.record
        self.byte_rate = rate.byte_rate
        # The waits of this period and of the previous one.
        self._newer = _Sample(-math.inf)
        self._older = _Sample(-math.inf)

    @property
    def is_exceeded(self) -> bool:
        """Whether the recent rate is above the limit."""
        return self.bytes_per_second != UNLIMITED and self.byte_rate() > self.bytes_per_second

    def on_throttled(self, waited_ms: float) -> None:
        """Count a copy or a read that waits, or has waited, for the quota."""
        self._advance()
        sample = self._newer
        sample.count += 1
        sample.total += waited_ms
        sample.largest = max(sample.largest, waited_ms)

    def throttle_times(self) -> ThrottleTimes:
        """Return the average and the largest recent wait."""
        self._advance()
        count = self._newer.count + self._older.count
        if not count:
            return ThrottleTimes(math.nan, math.nan)
        total = self._newer.total + self._older.total
        return ThrottleTimes(total / count, max(self._newer.largest, self._older.largest))

    def _advance(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._newer.start_ms < _SAMPLE_MS:
            return
        is_recent = now_ms - self._newer.start_ms < 2 * _SAMPLE_MS
        self._older = self._newer if is_recent else _Sample(-math.inf)
        self._newer = _Sample(now_ms)
