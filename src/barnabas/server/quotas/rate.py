"""Rate of recent use over sampled windows (Kafka: Rate over a SampledStat).

The rate is the sum of the kept samples, divided by the time since the oldest sample began. This
time is at least that of all windows but one. Throttle times therefore equal those of Kafka.
"""

from __future__ import annotations

_MS_PER_S = 1000.0


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = now_ms
        # Time of the latest event. A sample is reset when this time is older than all windows.
        self.last_ms = now_ms
        self.value = 0.0


class QuotaRate:
    """Recent use by one entity."""

    __slots__ = ("_current", "_samples", "_window_count", "_window_ms")

    def __init__(self, window_count: int, window_ms: float) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        # Ring of `window_count` + 1 samples, once it is full.
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: float) -> None:
        """Count a value. A negative value undoes an earlier call."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: float) -> tuple[float, float]:
        """Return the rate per second, and the time (ms) that the rate is averaged over."""
        self._forget_old(now_ms)
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        elapsed_ms = now_ms - min(sample.start_ms for sample in self._samples)
        missing = self._window_count - 1 - int(elapsed_ms / self._window_ms)
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        elapsed_ms = max(elapsed_ms, 1.0)
        total = sum(sample.value for sample in self._samples)
        return total * _MS_PER_S / elapsed_ms, elapsed_ms

    def throttle_ms(self, limit: float, now_ms: float) -> float:
        """Return the pause (ms) that brings the rate back to `limit`; 0 if it is not above."""
        rate, window_ms = self.measure(now_ms)
        return (rate - limit) / limit * window_ms if rate > limit else 0.0

    def is_idle(self, now_ms: float) -> bool:
        """Return whether all use has expired, so that the rate equals a new one."""
        expiry_ms = self._window_count * self._window_ms
        return all(
            sample.value == 0 or now_ms - sample.last_ms >= expiry_ms for sample in self._samples
        )

    def _advance(self, now_ms: float) -> _Sample:
        self._current = (self._current + 1) % (self._window_count + 1)
        sample = _Sample(now_ms)
        if self._current >= len(self._samples):
            self._samples.append(sample)
        else:
            self._samples[self._current] = sample
        return sample

    def _forget_old(self, now_ms: float) -> None:
        expiry_ms = self._window_count * self._window_ms
        for index, sample in enumerate(self._samples):
            if now_ms - sample.last_ms >= expiry_ms:
                self._samples[index] = _Sample(now_ms)
