"""Repeats a call with backoff until it succeeds, fails for good, or times out (KIP-580)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from barnabas.client.errors import ClientError, ClientTimeoutError

if TYPE_CHECKING:
    from barnabas.client.retries.backoff import Backoff
    from barnabas.runtime.loop import Runtime

__all__ = ["OnDone", "RetryingCall"]

T = TypeVar("T")
# Receives the outcome of a call: (result, None) or (None, error). Called exactly once.
OnDone: TypeAlias = Callable[[T | None, ClientError | None], None]


class RetryingCall(Generic[T]):
    """Calls `attempt` until it returns a result or an error that is not retriable.

    The outcome goes to `on_done` exactly once, after `start` was called.
    """

    __slots__ = (
        "_attempt",
        "_attempts",
        "_backoff",
        "_clock",
        "_deadline_ms",
        "_on_done",
        "_timer",
        "_what",
    )

    def __init__(
        self,
        runtime: Runtime,
        backoff: Backoff,
        timeout_ms: float,
        what: str,
        attempt: Callable[[OnDone[T]], None],
        on_done: OnDone[T],
    ) -> None:
        self._clock = runtime.clock
        self._timer = runtime.timer
        self._backoff = backoff
        self._deadline_ms = self._clock.monotonic_ms() + timeout_ms
        # Names the call in the message of a timeout.
        self._what = what
        self._attempt = attempt
        self._on_done = on_done
        self._attempts = 0

    def start(self) -> None:
        """Make the next attempt; `on_done` may be called before this returns."""
        self._attempts += 1
        self._attempt(self._on_attempt_done)

    def _on_attempt_done(self, result: T | None, error: ClientError | None) -> None:
        if error is None or not error.retriable:
            self._on_done(result, error)
            return
        delay = self._backoff.delay_ms(self._attempts)
        if self._clock.monotonic_ms() + delay >= self._deadline_ms:
            late = ClientTimeoutError(
                f"{self._what} did not work in time ({self._attempts} attempts); last: {error}"
            )
            late.__cause__ = error
            late.error_code = error.error_code
            self._on_done(None, late)
            return
        self._timer.call_later(delay, self.start)
