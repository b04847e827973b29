"""The interface to time: clocks, and timers of the event loop.

Few modules use the timers directly. Thousands of waits go through `waiting.timing_wheel`, which
sets one of these timers at a time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from barnabas.runtime.loop_watch import LoopWatch


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

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // _NS_PER_MS

    def monotonic_ms(self) -> float:
        """Return the milliseconds of the system's monotonic clock."""
        return time.monotonic() * _MS_PER_S


class Cancellable(Protocol):
    """A pending action that can be cancelled."""

    def cancel(self) -> object:
        """Cancel the action; no effect if it has already happened."""
        ...


class Timer(Protocol):
    """Calls back on the loop, never before the method returns."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Call back after `delay_ms` milliseconds."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn of the loop, in the order of the calls."""
        ...


class LoopTimer:
    """Timers of an asyncio event loop; a watch, if there is one, measures their callbacks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, watch: LoopWatch | None = None) -> None:
        self._loop = loop
        self._run = None if watch is None else watch.run

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Call back after `delay_ms` milliseconds."""
        if self._run is None:
            return self._loop.call_later(delay_ms / _MS_PER_S, callback)
        return self._loop.call_later(delay_ms / _MS_PER_S, self._run, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn."""
        if self._run is None:
            self._loop.call_soon(callback)
        else:
            self._loop.call_soon(self._run, callback)
