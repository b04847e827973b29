"""The one thread of a blocking client: steps its loop while the user is elsewhere.

A group's member has to be heard of between polls. Whoever holds the turn steps the loop: the user,
for as long as he is in a call, or this thread, once he has been away for a moment. A user who comes
back has the turn at once. A daemon: a program that ends without closing its consumer ends.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

__all__ = ["LoopKeeper"]

# How long nobody steps the loop before this thread takes the turn: who polls all the time has it
# always, but not who only makes calls that wait for nothing, however often.
_PATIENCE_S = 0.1


class LoopKeeper:
    """Steps `loop` between `take_over` and `step_aside`, which its user calls."""

    __slots__ = ("_ended", "_is_user_inside", "_loop", "_stepped_s", "_thread", "_turn")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Held by whoever may step the loop.
        self._turn = threading.Lock()
        self._turn.acquire()
        self._is_user_inside = True
        # When a user last left who had stepped the loop.
        self._stepped_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="barnabas-keeper", daemon=True)

    def start(self) -> None:
        """Begin; the caller has the turn."""
        self._thread.start()

    def step_aside(self) -> None:
        """Give the turn to the caller, who is the loop's user."""
        self._is_user_inside = True
        if not self._turn.acquire(blocking=False):
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._turn.acquire()

    def take_over(self, *, has_stepped: bool) -> None:
        """Take the turn back, in a moment if the user has stepped the loop."""
        if has_stepped:
            self._stepped_s = monotonic()
        self._is_user_inside = False
        self._turn.release()

    def end(self) -> None:
        """Step no more; the caller has the turn, and keeps it."""
        self._ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_PATIENCE_S):
            if self._is_user_inside or monotonic() - self._stepped_s < _PATIENCE_S:
                continue
            if not self._turn.acquire(blocking=False):
                continue
            try:
                if not self._loop.is_closed():
                    self._loop.run_forever()
            finally:
                self._turn.release()
