"""An answer that has to wait for something, or for its time to be over (Kafka's delayed operation).

It completes exactly once, whoever comes first: a check of one of its keys, its time-out, or a
caller that forces it. There is one thread, so that a flag is all the locking there is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

    from barnabas.waiting.timing_wheel import WheelEntry


class Watcher(Protocol):
    """The purgatory, as far as an operation knows it."""

    def forget(self, operation: DelayedOperation) -> None:
        """Take a completed operation out of all its keys."""
        ...


class DelayedOperation(ABC):
    """Base class: a subclass says when it is complete and what happens then.

    An operation whose client is gone is canceled instead.
    """

    __slots__ = ("_completed", "_entry", "_keys", "_purgatory", "delay_ms")

    def __init__(self, delay_ms: float) -> None:
        # How long it waits at most.
        self.delay_ms = delay_ms
        self._completed = False
        # Set by the purgatory while it waits there.
        self._purgatory: Watcher | None = None
        self._keys: list[Hashable] = []
        self._entry: WheelEntry | None = None

    @property
    def is_completed(self) -> bool:
        """Whether it was completed or canceled, or is being completed."""
        return self._completed

    @abstractmethod
    def try_complete(self) -> bool:
        """Look at the condition and, if it holds, `return self.force_complete()`."""

    def try_complete_for(self, key: Hashable) -> bool:  # noqa: ARG002
        """Something about one of its keys has changed: look, at that alone where that is enough."""
        return self.try_complete()

    @abstractmethod
    def on_complete(self) -> None:
        """Answer. Called once, whether complete or timed out."""

    def on_expiration(self) -> None:
        """Called after `on_complete` when the time was over: count it."""
        return

    def on_cancel(self) -> None:
        """Called instead of `on_complete` when the operation is canceled: release what it holds."""
        return

    def cancel(self) -> bool:
        """Give up without an answer, since the client is gone; returns whether this call did it."""
        if self._completed:
            return False
        self._completed = True
        self._leave()
        self.on_cancel()
        return True

    def force_complete(self) -> bool:
        """Complete now; returns whether this call did it."""
        if self._completed:
            return False
        self._completed = True
        self._leave()
        self.on_complete()
        return True

    def _leave(self) -> None:
        """Leave the wheel and the purgatory."""
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None
        if self._purgatory is not None:
            self._purgatory.forget(self)

    def expire(self) -> None:
        """The time is over (called by the wheel)."""
        if self.force_complete():
            self.on_expiration()
