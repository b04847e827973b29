"""A count and its rates over one, five and fifteen minutes, like Kafka's (Yammer) meters.

The rates are exponentially weighted averages in steps of five seconds. They are brought up to date
when they are read, so `mark` is only an addition.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock

_STEP_MS = 5000.0
_STEP_S = 5.0
_MS_PER_S = 1000.0
_MINUTES = (1, 5, 15)
_NAMES = ("one_minute_rate", "five_minute_rate", "fifteen_minute_rate")
_DECAYS = tuple(math.exp(-_STEP_S / 60.0 / minutes) for minutes in _MINUTES)


class Meter:
    """A count of events, and their rate per second."""

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
