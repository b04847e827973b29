"""The door to time: wall clock for timestamps in records, monotonic clock for every duration."""

from __future__ import annotations

import time
from typing import Protocol

_MS_PER_S = 1000.0
_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Two clocks; never compute a duration from the wall clock, it may jump."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as in record timestamps."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // _NS_PER_MS

    def monotonic_ms(self) -> float:
        """Milliseconds of the machine's monotonic clock."""
        return time.monotonic() * _MS_PER_S
