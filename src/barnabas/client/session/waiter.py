"""Waits for calls that complete by callback; the event loop runs during the wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.client.errors import ClientError, ClientTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.retries.retrying import OnDone
    from barnabas.runtime.stepper import LoopStepper

__all__ = ["Waiter"]

K = TypeVar("K")
T = TypeVar("T")
# Added to the timeout of the call itself, so that its own error arrives first.
_GRACE_MS = 5_000.0


class Waiter:
    """Converts calls with a callback to blocking calls.

    Args:
        stepper: runs the event loop.
        check_usable: raises if the client may no longer be used.
        timeout_ms: the timeout that every call enforces itself (`default.api.timeout.ms`).
    """

    def __init__(
        self, stepper: LoopStepper, check_usable: Callable[[], None], timeout_ms: float
    ) -> None:
        self._stepper = stepper
        self._check_usable = check_usable
        self._limit_ms = timeout_ms + _GRACE_MS

    def wait(self, start: Callable[[OnDone[T]], None], what: str) -> T:
        """Start a call and run the loop until its end.

        Raises:
            ClientError: the call failed.
        """
        found = self.wait_all({what: start})[what]
        if isinstance(found, ClientError):
            raise found
        return found

    def wait_all(self, starts: Mapping[K, Callable[[OnDone[T]], None]]) -> dict[K, T | ClientError]:
        """Start calls in parallel and wait for all; return each one's result or error."""
        self._check_usable()
        outcomes: dict[K, T | ClientError] = {}
        for key, start in starts.items():
            start(_noting(outcomes, key))
        complete = len(starts)
        if not self._stepper.run_until(lambda: len(outcomes) == complete, self._limit_ms):
            for key in starts:
                late = f"{key} did not end within default.api.timeout.ms"
                outcomes.setdefault(key, ClientTimeoutError(late))
        return {key: outcomes[key] for key in starts}

    def pause(self, delay_ms: float) -> None:
        """Wait for `delay_ms`; network events are processed in the meantime."""
        self._stepper.run_until(lambda: False, delay_ms)


def _noting(outcomes: dict[K, T | ClientError], key: K) -> OnDone[T]:
    def on_done(result: T | None, error: ClientError | None) -> None:
        if error is not None:
            outcomes[key] = error
        else:
            assert result is not None, key
            outcomes[key] = result

    return on_done
