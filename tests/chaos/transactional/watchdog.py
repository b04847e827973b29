"""A time limit for calls into a C library that sometimes never return."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

# Number of parts of the time limit, which are counted instead of the clock.
STEPS = 30


class HungCallError(Exception):
    """A call did not return long after its own time limit."""

    def __init__(self, name: str, limit_s: float) -> None:
        super().__init__(f"{name} did not return within {limit_s:g} s")


class Watchdog:
    """Reports calls that do not return. The calls must release the global interpreter lock.

    Args:
        limit_s: the time limit of a call in seconds.
        on_hung: called from another thread with the error, while the call still hangs.
    """

    def __init__(self, limit_s: float, on_hung: Callable[[HungCallError], object]) -> None:
        self._limit_s = limit_s
        self._on_hung = on_hung

    @contextlib.contextmanager
    def watch(self, name: str) -> Iterator[None]:
        """Limit the time of the block, which is the call with this name."""
        returned = threading.Event()
        threading.Thread(target=self._await, args=(name, returned), daemon=True).start()
        try:
            yield
        finally:
            returned.set()

    def _await(self, name: str, returned: threading.Event) -> None:
        """Wait for the end of the call.

        While the process is paused (SIGSTOP), clocks continue. Therefore the time is counted in
        steps: a pause ends one step, however long it is.
        """
        for _ in range(STEPS):
            if returned.wait(self._limit_s / STEPS):
                return
        self._on_hung(HungCallError(name, self._limit_s))
