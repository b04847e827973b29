"""The door to the end of another process: a server that tests started ends with the tests.

A process that was killed cannot tell its servers to end. So the server asks for its parent's id
twice a second. On Linux the kernel also sends SIGCONT to the server when its parent ends
(PR_SET_PDEATHSIG): the server looks at once then, even if it was stopped by SIGSTOP. SIGCONT is
harmless where nobody waits for it: the kernel also sends it when only the thread ends that started
the server.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.timer import Timer

__all__ = ["WAKING_SIGNAL", "ParentWatch"]

# What the kernel sends when the parent ends.
WAKING_SIGNAL = signal.SIGCONT
_LOOK_MS = 500.0


class ParentWatch:
    """Calls back once when a process has ended.

    Args:
        timer: calls `look` twice a second from `start` on.
        pid: id of the process; best the parent, whose end is seen whatever happens to its id.
        on_ended: called on the loop, at most once.
    """

    __slots__ = ("_is_parent", "_on_ended", "_pid", "_timer", "has_ended")

    def __init__(self, timer: Timer, pid: int, on_ended: Callable[[], None]) -> None:
        self._timer = timer
        self._pid = pid
        self._is_parent = os.getppid() == pid
        self._on_ended = on_ended
        # Whether the end was seen; set before `on_ended` is called.
        self.has_ended = False

    def start(self) -> None:
        """Look now, and twice a second from now on."""
        self.look()
        if not self.has_ended:
            self._timer.call_later(_LOOK_MS, self.start)

    def look(self) -> None:
        """Call back if the process has ended since the last look."""
        if not self.has_ended and self._is_gone():
            self.has_ended = True
            self._on_ended()

    def _is_gone(self) -> bool:
        if self._is_parent:
            return os.getppid() != self._pid
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            # It runs as another user.
            return False
        return False
