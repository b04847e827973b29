"""Average, maximum and rate over the last minute (Kafka's sensors: two windows of 30 s)."""

from __future__ import annotations

_WINDOW_MS = 30_000.0
_WINDOWS = 2
_MS_PER_S = 1000.0


class _Window:
    __slots__ = ("count", "maximum", "start_ms", "total")

    def __init__(self, start_ms: float) -> None:
        # Start of the window (monotonic, ms); then number, sum and maximum of its values.
        self.start_ms = start_ms
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0


class SampledValues:
    """Recorded values of the last minute; old values expire one window at a time."""

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
