"""Timers of a part that ends while its loop goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["EndingTimer"]

_MS_PER_S = 1000.0
# So many handles are kept before those that were cancelled are let go.
_PRUNE_FROM = 256


class EndingTimer:
    """A `Timer` whose pending calls `close` cancels."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Every handle that may still call back; some were cancelled by whoever has them.
        self._handles: set[asyncio.Handle] = set()
        self._prune_at = _PRUNE_FROM
        self._is_closed = False

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Call back after `delay_ms` milliseconds, unless `close` comes first."""
        handle: asyncio.Handle

        def run() -> None:
            self._handles.discard(handle)
            callback()

        handle = self._loop.call_later(delay_ms / _MS_PER_S, run)
        if self._is_closed:
            handle.cancel()
        else:
            self._keep(handle)
        return handle

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn of the loop, unless `close` comes first."""

        def run() -> None:
            if not self._is_closed:
                callback()

        self._loop.call_soon(run)

    def close(self) -> None:
        """Cancel all that is pending, and all that is asked for later."""
        self._is_closed = True
        for handle in self._handles:
            handle.cancel()
        self._handles.clear()

    def _keep(self, handle: asyncio.Handle) -> None:
        self._handles.add(handle)
        if len(self._handles) > self._prune_at:
            self._handles = {each for each in self._handles if not each.cancelled()}
            self._prune_at = 2 * len(self._handles) + _PRUNE_FROM
