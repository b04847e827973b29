"""Defers Ctrl-C while an event loop runs, and passes it to the original handler afterwards.

Python raises KeyboardInterrupt at any point of the main thread. In a callback of the loop, this is
inside uvloop, which treats it as an error of that connection or timer. The interrupt and the
connection are then lost. The busier the loop, the likelier this is.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DeferredInterrupt"]


class DeferredInterrupt:
    """Replaces the SIGINT handler while a loop runs. It has an effect only in the main thread."""

    __slots__ = ("_before", "_stop", "has_arrived")

    def __init__(self, stop: Callable[[], None]) -> None:
        # Stops the run of the loop; may be called within any callback.
        self._stop = stop
        # The original SIGINT handler; None while it is installed.
        self._before: Callable[[int, Any], Any] | None = None
        # Whether SIGINT has arrived during this run.
        self.has_arrived = False

    def defer(self) -> None:
        """Make SIGINT stop the loop.

        A second SIGINT before the loop has stopped is not deferred.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        self.has_arrived = False
        before = signal.signal(signal.SIGINT, self._on_signal)
        if before == self._on_signal:
            # A second SIGINT interrupted the last `release`, so the handler is still in place.
            return
        if callable(before):
            self._before = before
        else:
            # SIGINT is ignored or has the default action, which stays so.
            signal.signal(signal.SIGINT, before)

    def release(self) -> None:
        """Restore the original handler, and call it if SIGINT has arrived.

        Raises:
            KeyboardInterrupt: or any other exception of the handler.
        """
        before, self._before = self._before, None
        if before is None:
            return
        signal.signal(signal.SIGINT, before)
        arrived, self.has_arrived = self.has_arrived, False
        if arrived:
            before(signal.SIGINT, None)

    def _on_signal(self, number: int, frame: Any) -> None:
        if self.has_arrived and self._before is not None:
            # A callback does not return, so the second Ctrl-C must take effect at once.
            self._before(number, frame)
            return
        self.has_arrived = True
        self._stop()
