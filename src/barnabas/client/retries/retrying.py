"""Repeats a call with backoff until it succeeds, fails for good, or times out (KIP-580)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from barnabas.client.errors import ClientError, ClientTimeoutError

if TYPE_CHECKING:
    from barnabas.client.retries.retry_timer import RetryTimer

__all__ = ["OnDone", "RetryingCall"]

T = TypeVar("T")
# Receives the outcome of a call: (result, None) or (None, error). Called exactly once.
OnDone: TypeAlias = Callable[[T | None, ClientError | None], None]


class RetryingCall(Generic[T]):
    """Calls `attempt` until it returns a result or an error that is not retriable.

    The outcome goes to `on_done` exactly once, after `start` was called.
    """

    __slots__ = ("_attempt", "_on_done", "_operation", "_retry")

    def __init__(
        self,
        retry: RetryTimer,
        operation: str,
        attempt: Callable[[OnDone[T]], None],
        on_done: OnDone[T],
    ) -> None:
        # Its timeout limits the call.
        self._retry = retry
        # Names the call in the message of a timeout.
        self._operation = operation
        self._attempt = attempt
        self._on_done = on_done

    def start(self) -> None:
        """Make the next attempt; `on_done` may be called before this returns."""
        self._attempt(self._on_attempt_done)

    def _on_attempt_done(self, result: T | None, error: ClientError | None) -> None:
        if error is None or not error.retriable:
            self._on_done(result, error)
            return
        if not self._retry.retry(self.start):
            attempts = self._retry.failures
            timeout = ClientTimeoutError(
                f"{self._operation} timed out after {attempts} attempts; last error: {error}"
            )
            timeout.__cause__ = error
            timeout.error_code = error.error_code
            self._on_done(None, timeout)
