"""Retries of the client (KIP-580): backoff, the timer of the next attempt, repeated calls."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from barnabas.client.errors import ClientError, ClientTimeoutError
from barnabas.network.reconnect_backoff import exponential_ms

if TYPE_CHECKING:
    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.loop import Runtime
    from barnabas.runtime.rng import Rng

__all__ = ["Backoff", "OnDone", "RetryTimer", "RetryingCall"]

_JITTER = 0.2
T = TypeVar("T")
# Receives the outcome of a call: (result, None) or (None, error). Called exactly once.
OnDone: TypeAlias = Callable[[T | None, ClientError | None], None]


class Backoff:
    """Delay per attempt: doubles from `initial_ms` up to `max_ms`, plus or minus 20 %."""

    __slots__ = ("_initial_ms", "_max_ms", "_rng")

    def __init__(self, rng: Rng, initial_ms: float, max_ms: float) -> None:
        self._rng = rng
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)

    def delay_ms(self, attempts: int) -> float:
        """Return how long (ms) to wait after `attempts` failed attempts; 0 counts as 1."""
        delay = exponential_ms(self._initial_ms, self._max_ms, attempts)
        return delay * (1 + _JITTER * (2 * self._rng.random() - 1))


class RetryTimer:
    """Counts the consecutive failures of one operation and delays its next attempt.

    At most one attempt is scheduled. The owner counts failures with `next_delay_ms` or `retry`, and
    resets them with `reset` when the operation succeeds.

    Args:
        runtime: Provides clock and timers.
        backoff: Delay by number of failures.
        timeout_ms: How long after the creation of this object attempts may start (ms).
    """

    __slots__ = ("_backoff", "_clock", "_deadline_ms", "_due_ms", "_failures", "_timer", "_timers")

    def __init__(self, runtime: Runtime, backoff: Backoff, timeout_ms: float = inf) -> None:
        self._backoff = backoff
        self._clock = runtime.clock
        self._timers = runtime.timer
        # No attempt starts at or after this time (ms, monotonic clock).
        self._deadline_ms = self._clock.monotonic_ms() + timeout_ms
        # Number of consecutive failures; moved by `count_failure` and `reset`.
        self._failures = 0
        # Earliest time of the next attempt (ms, monotonic clock); moved by `start` and `hold_off`,
        # removed by `cancel`, by `clear_if_due` and when the timer fires. None without a delay.
        self._due_ms: float | None = None
        # Runs the next attempt; None if the owner starts it, or if no attempt is scheduled.
        # Invariant: not None only while `_due_ms` is not None.
        self._timer: Cancellable | None = None

    @property
    def failures(self) -> int:
        """Number of consecutive failures."""
        return self._failures

    @property
    def is_scheduled(self) -> bool:
        """Whether an attempt will be started by the timer."""
        return self._timer is not None

    @property
    def due_ms(self) -> float | None:
        """Earliest time of the next attempt (ms, monotonic clock); None if it may start now."""
        return self._due_ms

    def clear_if_due(self) -> None:
        """Remove a delay of `hold_off` that has passed."""
        is_past = self._due_ms is not None and self._clock.monotonic_ms() >= self._due_ms
        if is_past and self._timer is None:
            self._due_ms = None

    def reset(self) -> None:
        """Forget the failures, because an attempt succeeded; a scheduled attempt stays."""
        self._failures = 0

    def count_failure(self) -> None:
        """Count a failure without scheduling an attempt."""
        self._failures += 1

    def next_delay_ms(self) -> float | None:
        """Count a failure and return the delay of the next attempt.

        Returns:
            The delay in ms; None if the next attempt would start after the timeout.
        """
        self.count_failure()
        delay_ms = self._backoff.delay_ms(self._failures)
        if self._clock.monotonic_ms() + delay_ms >= self._deadline_ms:
            return None
        return delay_ms

    def retry(self, attempt: Callable[[], None], max_delay_ms: float = inf) -> bool:
        """Count a failure and schedule the next attempt.

        Args:
            attempt: Called after the delay, at most once.
            max_delay_ms: Upper limit of the delay in ms.

        Returns:
            False if the attempt would start after the timeout; then it is not scheduled.
        """
        delay_ms = self.next_delay_ms()
        if delay_ms is None:
            return False
        self.start(min(delay_ms, max_delay_ms), attempt)
        return True

    def hold_off(self) -> None:
        """Count a failure and set `due_ms`; the owner starts the next attempt itself."""
        delay_ms = self.next_delay_ms()
        assert delay_ms is not None, "only operations without a timeout are started by their owner"
        assert self._timer is None, f"an attempt is scheduled already, for {self._due_ms} ms"
        self._due_ms = self._clock.monotonic_ms() + delay_ms

    def start(self, delay_ms: float, attempt: Callable[[], None]) -> None:
        """Schedule an attempt after `delay_ms` without counting a failure."""
        assert self._timer is None, f"an attempt is scheduled already, for {self._due_ms} ms"

        def run() -> None:
            self._due_ms = self._timer = None
            attempt()

        self._due_ms = self._clock.monotonic_ms() + delay_ms
        self._timer = self._timers.call_later(delay_ms, run)

    def cancel(self) -> None:
        """Remove the delay and the scheduled attempt; does nothing without one."""
        if self._timer is not None:
            self._timer.cancel()
        self._due_ms = self._timer = None


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
