"""The interface to the process: its id, forks, end and environment, and locks of its threads."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
