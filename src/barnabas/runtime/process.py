"""The interface to the process: its id, parent, forks, end, environment and standard streams."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.runtime.clock import Timer


class ForkWatcher(Protocol):
    """An object that must know that the process is a forked child."""

    def on_forked(self) -> None:
        """Handle that this process is a child, which has a copy of the object."""
        ...


_fork_watchers: WeakSet[ForkWatcher] = WeakSet()


def watch_forks(watcher: ForkWatcher) -> None:
    """Call `watcher.on_forked` in all children that the process forks; keep no reference."""
    _fork_watchers.add(watcher)


def _on_forked() -> None:
    for watcher in list(_fork_watchers):
        watcher.on_forked()


if hasattr(os, "register_at_fork"):
    # Windows has no forks.
    os.register_at_fork(after_in_child=_on_forked)


def process_id() -> int:
    """Return the id of the running process, which differs between a forked child and its parent."""
    return os.getpid()


def at_exit(callback: Callable[[], None]) -> None:
    """Call `callback` when the interpreter ends normally, before it deletes objects."""
    atexit.register(callback)


def environment() -> Mapping[str, str]:
    """Return the environment variables of the process."""
    return os.environ


def reentrant_lock() -> threading.RLock:
    """Return a lock between threads. The thread that holds it may acquire it again."""
    return threading.RLock()


def host_name() -> str:
    """Return the host name that the operating system reports."""
    return socket.gethostname()


# Names in the module sys, and modes, of the descriptors 0 to 2.
# Exit status that a shell expects after Ctrl-C: 128 and the number of SIGINT.
EXIT_INTERRUPTED = 130
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_standard_descriptors() -> None:
    """Open the null device on each closed descriptor of 0 to 2.

    A process may be started with a closed standard stream (`2>&-`). Its next file or socket would
    get that number: messages would be written into a data file, and uvloop aborts when such a
    socket is closed.
    """
    for number in range(len(_STREAMS)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            # Child processes inherit standard streams. `dup2` makes the copy inheritable.
            if opened == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(opened, number)
                os.close(opened)


def open_standard_streams() -> None:
    """Open closed descriptors, and set the missing streams of the module sys."""
    open_standard_descriptors()
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def discard_standard_output() -> None:
    """Replace standard output by the null device, after a write to it has failed.

    Otherwise writing the remaining buffer at the end of the process would fail too.
    """
    opened = os.open(os.devnull, os.O_WRONLY)
    os.dup2(opened, sys.stdout.fileno())
    os.close(opened)


# The signal that the kernel sends when the parent ends. Windows has none.
WAKING_SIGNAL: signal.Signals = getattr(signal, "SIGCONT", signal.SIGTERM)
# The signal of a closed terminal. Windows has none.
HANGUP: signal.Signals = getattr(signal, "SIGHUP", signal.SIGTERM)
_CHECK_INTERVAL_MS = 500.0


class ParentWatch:
    """Calls back once when a process has ended, so that a server ends with the tests that need it.

    A process that is killed cannot stop its servers. Therefore the server checks its parent's id
    twice a second. On Linux the kernel also sends SIGCONT to the server when its parent ends
    (PR_SET_PDEATHSIG). The server then checks at once, even if SIGSTOP had stopped it. SIGCONT has
    no effect on a running process. The kernel also sends it when only the thread that started the
    server ends.

    Args:
        timer: calls `check` twice a second after `start`.
        pid: id of the process. A parent's end is detected even if its id is reused.
        on_ended: called on the loop, at most once.
    """

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
