"""Requests that are pending under keys (Kafka's DelayedOperationPurgatory).

A request completes exactly once: by a check of one of its keys, by its timeout, or by a caller that
forces completion. There is only one thread, so a flag suffices instead of a lock.

Code that changes a condition calls `check_and_complete(key)` after the change, never during it. A
completed operation is removed from all its keys at once. Kafka purges completed operations
periodically instead, because each removal would take a lock.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from barnabas.waiting.timing_wheel import Timeouts

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from barnabas.waiting.timing_wheel import TimingWheel


_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """The part of the purgatory that an operation uses."""

    def forget(self, operation: DelayedOperation) -> None:
        """Remove a completed operation from all its keys."""
        ...


class Cancellable(Protocol):
    """An operation that ends without a response if the client disconnects."""

    def cancel(self) -> object:
        """Cancel the operation, if it is pending."""
        ...


class CanceledTogether:
    """The operations of one request, which starts them one after the other."""

    __slots__ = ("_is_canceled", "_operations")

    def __init__(self) -> None:
        self._operations: list[Cancellable] = []
        # Whether the client is gone. Never reset.
        self._is_canceled = False

    def add(self, operation: Cancellable) -> None:
        """Cancel the operation with the others, or now if they are canceled already."""
        if self._is_canceled:
            operation.cancel()
        else:
            self._operations.append(operation)

    def cancel(self) -> None:
        """Cancel all operations, because the client is gone."""
        self._is_canceled = True
        operations, self._operations = self._operations, []
        for each in operations:
            each.cancel()


class DelayedOperation(ABC):
    """Base class: a subclass defines the condition and the completion.

    If the client disconnects, the operation is canceled instead of completed.
    """

    __slots__ = ("_completed", "_keys", "_purgatory", "delay_ms")

    def __init__(self, delay_ms: float) -> None:
        # Timeout of the operation, in ms.
        self.delay_ms = delay_ms
        self._completed = False
        # Set by the purgatory while the operation is pending.
        self._purgatory: Watcher | None = None
        self._keys: list[Hashable] = []

    @property
    def is_completed(self) -> bool:
        """Whether the operation was completed or canceled, or is being completed."""
        return self._completed

    @abstractmethod
    def try_complete(self) -> bool:
        """Check the condition and, if it is true, `return self.force_complete()`."""

    def try_complete_for(self, key: Hashable) -> bool:
        """Check the condition after a change to one key, for that key only if that suffices."""
        return self.try_complete()

    @abstractmethod
    def on_complete(self) -> None:
        """Complete the request. Called once, also after a timeout."""

    def on_expiration(self) -> None:
        """Record a timeout. Called after `on_complete`."""
        return

    def on_cancel(self) -> None:
        """Release resources. Called instead of `on_complete` when the operation is canceled."""
        return

    def cancel(self) -> bool:
        """Cancel without a response because the client is gone; return whether this call did it."""
        if self._completed:
            return False
        self._completed = True
        self._leave()
        self.on_cancel()
        return True

    def force_complete(self) -> bool:
        """Complete now; return whether this call did it."""
        if self._completed:
            return False
        self._completed = True
        self._leave()
        self.on_complete()
        return True

    def _leave(self) -> None:
        """Leave the purgatory."""
        if self._purgatory is not None:
            self._purgatory.forget(self)

    def expire(self) -> None:
        """Complete after the timeout (called by the purgatory)."""
        if self.force_complete():
            self.on_expiration()


# Weight of an operation in the limit, in addition to its keys.
_WEIGHT_OF_OPERATION = 4


class Purgatory:
    """Pending operations of one kind."""

    __slots__ = (
        "_in_order",
        "_shut_down",
        "_timeouts",
        "_watched",
        "_watched_max",
        "_watchers",
        "delayed",
        "name",
    )

    def __init__(self, name: str, wheel: TimingWheel, watched_max: int | None = None) -> None:
        """Create a purgatory.

        Args:
            watched_max: maximum weight of all pending operations: the number of keys plus four for
                each operation. Above it, the oldest operations are completed as after a timeout, so
                it suits only operations whose clients lose nothing by that. None means no limit.
        """
        self.name = name
        self._watched_max = watched_max
        # Pending operations, the oldest first; used only with a limit.
        self._in_order: dict[DelayedOperation, None] = {}
        self._timeouts = Timeouts(wheel)
        # Pending operations by key, in order of arrival; a key without operations is absent.
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        # Number of pending operations, each counted once per key.
        self._watched = 0
        # Number of pending operations, each counted once.
        self.delayed = 0
        # Set by `shutdown`; never reset. Later operations are not watched.
        self._shut_down = False

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Iterable[Hashable]
    ) -> bool:
        """Complete the operation if its condition is true, otherwise watch it under `keys`.

        The condition is checked again once the operation is watched. Calls made by the first check
        may make it true at a time when no key watches the operation yet.

        Returns:
            Whether the operation is completed; `on_complete` may run before this returns.
        """
        if operation.is_completed or operation.try_complete():
            return True
        if self._shut_down:
            return False
        self._enter(operation, keys)
        if operation.try_complete() or operation.is_completed:
            return True
        self._timeouts.add(operation)
        self._maybe_complete_oldest()
        return operation.is_completed

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Watch an operation under `keys` without checking its condition.

        The caller has just checked the condition in the same turn, and nothing has changed since.
        """
        if not self._shut_down:
            self._enter(operation, keys)
            self._timeouts.add(operation)
            self._maybe_complete_oldest()

    def _maybe_complete_oldest(self) -> None:
        limit = self._watched_max
        while limit is not None and self._watched + _WEIGHT_OF_OPERATION * self.delayed > limit:
            next(iter(self._in_order)).force_complete()

    def _enter(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        assert operation._purgatory is None, f"{operation!r} is already watched in {self.name}"
        operation._purgatory = self
        operation._keys = list(dict.fromkeys(keys))
        for key in operation._keys:
            self._watchers.setdefault(key, {})[operation] = None
        self._watched += len(operation._keys)
        self.delayed += 1
        if self._watched_max is not None:
            self._in_order[operation] = None

    def watch_also(self, operation: DelayedOperation, key: Hashable) -> None:
        """Watch a pending operation under one more key."""
        if operation._purgatory is not self:
            return
        watchers = self._watchers.setdefault(key, {})
        if operation not in watchers:
            watchers[operation] = None
            operation._keys.append(key)
            self._watched += 1

    def watch_more(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Watch a pending operation under further keys, within the limit of all operations."""
        for key in keys:
            self.watch_also(operation, key)
        self._maybe_complete_oldest()

    def check_and_complete(self, key: Hashable) -> int:
        """Check all operations under `key`; return the number that completed."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        # A copy, because completion removes operations and may start or complete others.
        for operation in list(watchers):
            if operation.is_completed:
                continue
            try:
                completed += operation.try_complete_for(key)
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - the others are completed
                # Not raised, because the caller serves another client's request.
                _log.exception("Unexpected error in a waiting %s: key=%s", self.name, key)
        return completed

    def operations(self, key: Hashable) -> list[DelayedOperation]:
        """Return the operations that are pending under `key`, the oldest first."""
        return list(self._watchers.get(key, ()))

    def complete_all(self) -> int:
        """Complete all pending operations as after a timeout; return their number."""
        waiting = dict.fromkeys(each for watchers in self._watchers.values() for each in watchers)
        return sum(operation.force_complete() for operation in waiting)

    def forget(self, operation: DelayedOperation) -> None:
        """Remove a completed operation from all its keys (called by the operation)."""
        for key in operation._keys:
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
        self._watched -= len(operation._keys)
        self.delayed -= 1
        self._timeouts.remove(operation)
        if self._watched_max is not None:
            del self._in_order[operation]
        operation._keys = []
        operation._purgatory = None

    def watched(self) -> int:
        """Return the number of pending operations, each counted once per key."""
        return self._watched

    def shutdown(self) -> None:
        """Drop pending operations without a response.

        Later operations are checked once and then dropped.
        """
        self._shut_down = True
        for watchers in list(self._watchers.values()):
            for operation in list(watchers):
                if operation._purgatory is self:
                    self.forget(operation)
        self._timeouts.close()
