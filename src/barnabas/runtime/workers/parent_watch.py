"""Detects the end of another process, so that a server that tests have started ends with them.

A process that is killed cannot stop its servers. Therefore the server checks its parent's id twice
a second. On Linux the kernel also sends SIGCONT to the server when its parent ends
(PR_SET_PDEATHSIG). The server then checks at once, even if SIGSTOP had stopped it. SIGCONT has no
effect on a running process. The kernel also sends it when only the thread that started the server
ends.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.timer import Timer

__all__ = ["WAKING_SIGNAL", "ParentWatch"]

# The signal that the kernel sends when the parent ends.
WAKING_SIGNAL = signal.SIGCONT
_CHECK_INTERVAL_MS = 500.0


class ParentWatch:
    """Calls back once when a process has ended.

    Args:
        timer: calls `check` twice a second after `start`.
        pid: id of the process. A parent's end is detected even if its id is reused.
        on_ended: called on the loop, at most once.
    """

    __slots__ = ("_is_parent", "_on_ended", "_pid", "_timer", "has_ended")

    def __init__(self, timer: Timer, pid: int, on_ended: Callable[[], None]) -> None:
        self._timer = timer
        self._pid = pid
        self._is_parent = os.getppid() == pid
        self._on_ended = on_ended
        # Whether the end was detected; set before `on_ended` is called.
        self.has_ended = False

    def start(self) -> None:
        """Check now, and twice a second from now on."""
        self.check()
        if not self.has_ended:
            self._timer.call_later(_CHECK_INTERVAL_MS, self.start)

    def check(self) -> None:
        """Call `on_ended` if the process has ended and this was not reported yet."""
        if not self.has_ended and self._has_parent_ended():
            self.has_ended = True
            self._on_ended()

    def _has_parent_ended(self) -> bool:
        if self._is_parent:
            return os.getppid() != self._pid
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            # The process exists, but belongs to another user.
            return False
        return False
