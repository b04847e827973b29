"""The thread of a blocking client, which runs the event loop between calls of the user.

A group member must send heartbeats between polls. Only the holder of the turn may run the loop. The
user holds the turn during each call. This thread takes it after the user has been away for a
moment, and gives it back at once when the user returns. It is a daemon thread, so that a program
can end without closing its consumer.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

__all__ = ["LoopThread"]

# Delay (s) between the last call that ran the loop and the time when this thread takes the turn.
# During continuous polls the user therefore always has the turn.
_TAKE_OVER_DELAY_S = 0.1


class LoopThread:
    """Runs `loop` between `release_turn` and `acquire_turn`, which the user of the loop calls."""

    __slots__ = ("_ended", "_is_user_inside", "_loop", "_stepped_s", "_thread", "_turn")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Held by the thread that may run the loop.
        self._turn = threading.Lock()
        self._turn.acquire()
        self._is_user_inside = True
        # When the user last left after running the loop (s, monotonic).
        self._stepped_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="barnabas-loop", daemon=True)

    def start(self) -> None:
        """Start the thread. The caller holds the turn."""
        self._thread.start()

    def acquire_turn(self) -> None:
        """Give the turn to the calling thread, which runs the loop from now on."""
        self._is_user_inside = True
        if not self._turn.acquire(blocking=False):
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._turn.acquire()

    def release_turn(self, *, has_stepped: bool) -> None:
        """Return the turn to this thread, after a delay if the user has run the loop."""
        if has_stepped:
            self._stepped_s = monotonic()
        self._is_user_inside = False
        self._turn.release()

    def end(self) -> None:
        """End the thread. The caller holds the turn and keeps it."""
        self._ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_TAKE_OVER_DELAY_S):
            if self._is_user_inside or monotonic() - self._stepped_s < _TAKE_OVER_DELAY_S:
                continue
            if not self._turn.acquire(blocking=False):
                continue
            try:
                if not self._loop.is_closed():
                    self._loop.run_forever()
            finally:
                self._turn.release()
