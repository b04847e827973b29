"""Rates of recent use, and a bounded table of recently used values.

A rate is the sum of the kept samples, divided by the time since the oldest sample began (Kafka:
Rate over a SampledStat). This time is at least that of all windows but one. Throttle times
therefore equal those of Kafka.

Clients choose the names in the table. In a large table, each new entry checks the two oldest
entries. An idle entry is dropped, and an active one moves to the end. The cost of an entry is
therefore constant, and idle entries disappear in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from barnabas.settings.definition import ParsedConfig

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

_MS_PER_S = 1000.0


class QuotaWindows(msgspec.Struct, frozen=True):
    """Number and size (ms) of windows: `quota.window.num` and `quota.window.size.seconds`."""

    count: int
    size_ms: float


def quota_windows(config: ParsedConfig) -> QuotaWindows:
    """Return the windows of client and connection quotas."""
    return QuotaWindows(
        config.integer("quota.window.num"), config.integer("quota.window.size.seconds") * _MS_PER_S
    )


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


ENTRIES_MAX = 10_000
_CHECKED_PER_ADD = 2
# Number of entries below which no entry is checked. Metrics of this many idle clients stay.
_ENTRIES_FREE = 1000


class UsedRecently(Generic[K, V]):
    """Values by name. Above `entries_max` the oldest value is dropped, even if it is active."""

    __slots__ = ("_entries", "_entries_max", "_is_idle")

    def __init__(self, is_idle: Callable[[V, float], bool], entries_max: int = ENTRIES_MAX) -> None:
        """Create an empty table.

        Args:
            is_idle: returns whether a value is equivalent to a new one at a time (ms).
            entries_max: maximum number of entries.
        """
        self._is_idle = is_idle
        self._entries_max = entries_max
        self._entries: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: K) -> V | None:
        """Return the value of a name, or None."""
        return self._entries.get(name)

    def add(self, name: K, value: V, now_ms: float) -> None:
        """Add a new value, and check the two oldest entries."""
        entries = self._entries
        if len(entries) >= _ENTRIES_FREE:
            for _ in range(_CHECKED_PER_ADD):
                oldest = next(iter(entries))
                kept = entries.pop(oldest)
                if not self._is_idle(kept, now_ms):
                    entries[oldest] = kept
        if len(entries) >= self._entries_max:
            del entries[next(iter(entries))]
        entries[name] = value

    def remove_if(self, is_expired: Callable[[V], bool]) -> None:
        """Remove the entries whose value has expired."""
        expired = [name for name, value in self._entries.items() if is_expired(value)]
        for name in expired:
            del self._entries[name]

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()

    def items(self) -> Iterator[tuple[K, V]]:
        """Return an iterator over all names and values."""
        return iter(self._entries.items())
