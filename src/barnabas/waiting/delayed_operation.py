"""A request that is pending on a condition or a timeout (Kafka's DelayedOperation).

It completes exactly once: by a check of one of its keys, by its timeout, or by a caller that forces
completion. There is only one thread, so a flag suffices instead of a lock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable


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
