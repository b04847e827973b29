"""The interface to the event loop's timers.

Few modules use it directly. Thousands of waits go through `waiting.timing_wheel`, which sets one of
these timers at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from barnabas.runtime.loop_watch import LoopWatch

_MS_PER_S = 1000.0


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
    """Timers of an asyncio event loop, without a watch."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Call back after `delay_ms` milliseconds."""
        return self._loop.call_later(delay_ms / _MS_PER_S, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn."""
        self._loop.call_soon(callback)


class WatchedTimer:
    """Timers of an asyncio event loop, whose callbacks a watch measures."""

    __slots__ = ("_loop", "_run")

    def __init__(self, loop: asyncio.AbstractEventLoop, watch: LoopWatch) -> None:
        self._loop = loop
        self._run = watch.run

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Call back after `delay_ms` milliseconds."""
        return self._loop.call_later(delay_ms / _MS_PER_S, self._run, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn."""
        self._loop.call_soon(self._run, callback)
