"""Ctrl-C while a loop runs: kept until the loop has stopped, then given to who handles it.

Python raises KeyboardInterrupt wherever the main thread happens to be. Within a callback of the
loop that is within uvloop, which takes it for an error of that connection or timer: the interrupt
is lost and the connection with it, and the busier the loop, the likelier that is.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KeptInterrupt"]


class KeptInterrupt:
    """Stands in for SIGINT's handler while a loop runs. Threads beside the main one have none."""

    __slots__ = ("_before", "_stop", "has_arrived")

    def __init__(self, stop: Callable[[], None]) -> None:
        # Ends the run of the loop; may be called within any callback.
        self._stop = stop
        # What handles SIGINT otherwise; None while it does.
        self._before: Callable[[int, Any], Any] | None = None
        # Whether SIGINT came during this run.
        self.has_arrived = False

    def keep(self) -> None:
        """From now on SIGINT stops the loop; a second one before it has stopped is not kept."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.has_arrived = False
        before = signal.signal(signal.SIGINT, self._on_signal)
        if before == self._on_signal:
            # The last `release` was broken off by a second SIGINT.
            return
        if callable(before):
            self._before = before
        else:
            # Ignored, or left to the system: so it stays.
            signal.signal(signal.SIGINT, before)

    def release(self) -> None:
        """Give back the handler, and call it if SIGINT came.

        Raises:
            KeyboardInterrupt: or whatever else the handler raises.
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
            # A callback that does not return: who presses twice means it.
            self._before(number, frame)
            return
        self.has_arrived = True
        self._stop()
