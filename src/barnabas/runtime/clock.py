"""The interface to time: wall clock for record timestamps, monotonic clock for durations."""

from __future__ import annotations

import time
from typing import Protocol

_MS_PER_S = 1000.0
_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Two clocks. Never compute a duration from the wall clock, because it may jump."""

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970-01-01 UTC, as in record timestamps."""
        ...

    def monotonic_ms(self) -> float:
        """Return the milliseconds since an arbitrary start; the value never decreases."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // _NS_PER_MS

    def monotonic_ms(self) -> float:
        """Return the milliseconds of the system's monotonic clock."""
        return time.monotonic() * _MS_PER_S
