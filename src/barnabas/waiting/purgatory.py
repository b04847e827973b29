"""Where delayed operations wait under keys (Kafka: DelayedOperationPurgatory).

Whoever changes what an operation may wait for calls `check_and_complete(key)` after the change,
never in the midst of it. A completed operation leaves all of its keys at once; Kafka purges them
now and then instead, because there a lock would be taken per key.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from barnabas.waiting.delayed_operation import DelayedOperation
    from barnabas.waiting.timing_wheel import TimingWheel

_log = logging.getLogger(__name__)


# What an operation counts for beside its keys, as if it had so many more.
_KEYS_OF_NONE = 4


class Purgatory:
    """Operations of one kind."""

    __slots__ = (
        "_in_order",
        "_shut_down",
        "_watched",
        "_watched_max",
        "_watchers",
        "_wheel",
        "delayed",
        "name",
    )

    def __init__(self, name: str, wheel: TimingWheel, watched_max: int | None = None) -> None:
        """Args:
        watched_max: when operations wait under more keys together, the oldest are completed as if
            their time were over; only for operations whose clients lose nothing by that. An
            operation itself counts as four keys. None: no limit.
        """
        self.name = name
        self._watched_max = watched_max
        # Operations that wait, the oldest first; kept only if there is a limit.
        self._in_order: dict[DelayedOperation, None] = {}
        self._wheel = wheel
        # Operations by key, in the order in which they came; a key without any is not there.
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._watched = 0
        # Operations that wait.
        self.delayed = 0
        self._shut_down = False

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Iterable[Hashable]
    ) -> bool:
        """Complete it now if its condition holds, else let it wait under `keys`.

        The condition is looked at again once it is watched: what it waits for may have come
        through the very calls of the first look, when nobody would have woken it.

        Returns:
            Whether it is completed; `on_complete` may run before this returns.
        """
        if operation.is_completed or operation.try_complete():
            return True
        if self._shut_down:
            return False
        self._enter(operation, keys)
        if operation.try_complete() or operation.is_completed:
            return True
        operation._entry = self._wheel.add(operation.delay_ms, operation.expire)
        self._maybe_complete_oldest()
        return operation.is_completed

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Let it wait under `keys` without a look: its condition was looked at in this very turn,
        and nothing has happened since."""
        if not self._shut_down:
            self._enter(operation, keys)
            operation._entry = self._wheel.add(operation.delay_ms, operation.expire)
            self._maybe_complete_oldest()

    def _maybe_complete_oldest(self) -> None:
        limit = self._watched_max
        while limit is not None and self._watched + _KEYS_OF_NONE * self.delayed > limit:
            next(iter(self._in_order)).force_complete()

    def _enter(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        assert operation._purgatory is None, "an operation waits in one purgatory, once"
        operation._purgatory = self
        operation._keys = list(dict.fromkeys(keys))
        for key in operation._keys:
            self._watchers.setdefault(key, {})[operation] = None
        self._watched += len(operation._keys)
        self.delayed += 1
        if self._watched_max is not None:
            self._in_order[operation] = None

    def watch_also(self, operation: DelayedOperation, key: Hashable) -> None:
        """Let one that waits here wait under one more key."""
        if operation._purgatory is not self:
            return
        watchers = self._watchers.setdefault(key, {})
        if operation not in watchers:
            watchers[operation] = None
            operation._keys.append(key)
            self._watched += 1

    def check_and_complete(self, key: Hashable) -> int:
        """Look at all operations under `key`; returns how many that completed."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        # A copy: completing one takes it out, and may start or complete others.
        for operation in list(watchers):
            if operation.is_completed:
                continue
            try:
                completed += operation.try_complete_for(key)
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - the others are completed
                # Not raised to the caller, which serves another client's request.
                _log.exception("Unexpected error in a waiting %s: key=%s", self.name, key)
        return completed

    def complete_all(self) -> int:
        """Complete all that waits, as if its time were over; returns how many."""
        waiting = dict.fromkeys(each for watchers in self._watchers.values() for each in watchers)
        return sum(operation.force_complete() for operation in waiting)

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """Stop watching under `key`; the operations wait on for their other keys and their time.

        Returns:
            The operations, for the caller to force.
        """
        operations = list(self._watchers.pop(key, ()))
        for operation in operations:
            operation._keys.remove(key)
        self._watched -= len(operations)
        return operations

    def forget(self, operation: DelayedOperation) -> None:
        """Take a completed operation out of all its keys (called by the operation)."""
        for key in operation._keys:
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
        self._watched -= len(operation._keys)
        self.delayed -= 1
        if self._watched_max is not None:
            del self._in_order[operation]
        operation._keys = []
        operation._purgatory = None

    def watched(self) -> int:
        """Operations counted once per key they wait under."""
        return self._watched

    def shutdown(self) -> None:
        """Drop all that waits, unanswered; what comes later is tried once and dropped."""
        self._shut_down = True
        for watchers in list(self._watchers.values()):
            for operation in list(watchers):
                if operation._entry is not None:
                    operation._entry.cancel()
                    operation._entry = None
                if operation._purgatory is self:
                    self.forget(operation)
