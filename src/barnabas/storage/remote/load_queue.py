"""Loads from the remote store that wait for memory and for a thread, in the order of their start.

A load gets all its memory before it starts, or it waits and has none. So loads never wait for each
other in a circle. A load that needs much memory is not overtaken by later ones.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from barnabas.storage.remote.remote_storage import RemoteStorageError, RemoteUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Cancellable, Timer
    from barnabas.runtime.worker_pool import WorkerPool

_log = logging.getLogger(__name__)

P = ParamSpec("P")

# Loads that may wait in one queue. A further load fails.
WAITING_MAX = 10_000
# The queue looks for memory that others have given back, and for idle threads, after this time.
_RETRY_MS = 10.0


class Load:
    """A load in the queue."""

    __slots__ = ("admit", "on_done", "work")

    def __init__(
        self,
        work: Callable[[], Any],
        on_done: Callable[[Any, BaseException | None], None],
        admit: Callable[[], bool],
    ) -> None:
        """Create a load.

        Args:
            work: the blocking call, for a thread.
            on_done: receives the result or the error, on the loop.
            admit: takes the memory that the load needs. Returns False without memory.
        """
        self.work = work
        self.on_done = on_done
        self.admit = admit


class Waiters(Generic[P]):
    """The calls that wait for the result of one load."""

    __slots__ = ("_callbacks", "_on_unwanted")

    def __init__(self, on_unwanted: Callable[[], None]) -> None:
        """Create without calls.

        Args:
            on_unwanted: called when the last call was canceled.
        """
        self._callbacks: dict[_Waiter, Callable[P, None]] = {}
        self._on_unwanted = on_unwanted

    def add(self, on_done: Callable[P, None]) -> Cancellable:
        """Add a call. It can be canceled until the load has ended."""
        waiter = _Waiter(self)
        self._callbacks[waiter] = on_done
        return waiter

    def remove(self, waiter: _Waiter) -> None:
        """Remove a call, see `_Waiter.cancel`."""
        if self._callbacks.pop(waiter, None) is not None and not self._callbacks:
            self._on_unwanted()

    def clear(self) -> None:
        """Call nothing back."""
        self._callbacks.clear()

    def call(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all back: the load has ended."""
        callbacks = list(self._callbacks.values())
        self._callbacks.clear()
        for on_done in callbacks:
            on_done(*args, **kwargs)


class _Waiter:
    """A call that waits for a load."""

    __slots__ = ("_waiters",)

    def __init__(self, waiters: Waiters[Any]) -> None:
        self._waiters = waiters

    def cancel(self) -> None:
        """Do not call back. A load that only this call waits for leaves the queue."""
        self._waiters.remove(self)


def storage_error(error: BaseException | None) -> RemoteStorageError:
    """Return the error of a failed load. A store raises no other errors, so others are logged."""
    if isinstance(error, RemoteStorageError):
        return error
    _log.error("Unexpected error of the remote storage", exc_info=error)
    return RemoteUnavailableError(f"the remote storage failed: {error!r}")


def queue_full() -> RemoteStorageError:
    """Return the error of a load that `LoadQueue.add` refuses."""
    return RemoteUnavailableError("too many reads of the remote tier wait")


class LoadQueue:
    """Starts loads in a pool of threads. All methods are called on the loop."""

    __slots__ = ("_is_closed", "_pool", "_retry_entry", "_timer", "_waiting")

    def __init__(self, pool: WorkerPool, timer: Timer) -> None:
        self._pool = pool
        self._timer = timer
        # Loads that have no memory and no thread yet, the oldest first.
        self._waiting: OrderedDict[Load, None] = OrderedDict()
        # Pending while loads wait.
        self._retry_entry: Cancellable | None = None
        # Set by `close`; never reset.
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of loads that have not started."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no load waits and a thread is free."""
        return not self._waiting and self._pool.running < self._pool.threads

    def add(self, load: Load) -> bool:
        """Start a load now or later.

        Returns:
            False if too many loads wait. `on_done` is not called then, and never before this
                returns.
        """
        if self._is_closed or len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting[load] = None
        self.advance()
        return True

    def remove(self, load: Load) -> bool:
        """Remove a load that has not started; return whether it was removed."""
        if load not in self._waiting:
            return False
        del self._waiting[load]
        return True

    def advance(self) -> None:
        """Start the loads for which there are memory and a thread."""
        pool = self._pool
        while self._waiting and not self._is_closed:
            if pool.running >= pool.threads and pool.queued >= pool.queue_max:
                break
            load = next(iter(self._waiting))
            if not load.admit():
                break
            del self._waiting[load]
            if pool.submit(load.work, load.on_done) is None:
                closed = RemoteUnavailableError("the broker stops reading the remote tier")
                self._timer.call_soon(_failing(load, closed))
        if self._waiting and self._retry_entry is None and not self._is_closed:
            self._retry_entry = self._timer.call_later(_RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._retry_entry = None
        self.advance()

    def close(self) -> None:
        """Drop the loads that have not started. Those that run are not stopped."""
        self._is_closed = True
        self._waiting.clear()
        if self._retry_entry is not None:
            self._retry_entry.cancel()
            self._retry_entry = None


def _failing(load: Load, error: RemoteUnavailableError) -> Callable[[], None]:
    return lambda: load.on_done(None, error)
