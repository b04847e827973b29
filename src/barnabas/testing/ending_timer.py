"""Timers of a component that ends before its event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["EndingTimer"]

_MS_PER_S = 1000.0
# Number of handles at which cancelled handles are removed for the first time.
_PRUNE_FROM = 256


class EndingTimer:
    """A `Timer` whose pending calls are canceled by `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Handles of pending calls, including handles that their owner has canceled.
        self._handles: set[asyncio.Handle] = set()
        self._prune_at = _PRUNE_FROM
        self._is_closed = False

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> asyncio.Handle:
        """Call `callback` after `delay_ms`, unless `close` comes first."""
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
        """Call `callback` in the next loop iteration, unless `close` comes first."""

        def run() -> None:
            if not self._is_closed:
                callback()

        self._loop.call_soon(run)

    def close(self) -> None:
        """Cancel all pending calls and all later ones."""
        self._is_closed = True
        for handle in self._handles:
            handle.cancel()
        self._handles.clear()

    def _keep(self, handle: asyncio.Handle) -> None:
        self._handles.add(handle)
        if len(self._handles) > self._prune_at:
            self._handles = {each for each in self._handles if not each.cancelled()}
            self._prune_at = 2 * len(self._handles) + _PRUNE_FROM
