"""How calls begin and end: the base of the blocking and the asyncio consumer's calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self, TypeVar

from barnabas.client.errors import ClientClosedError, ClientTimeoutError

if TYPE_CHECKING:
    from types import TracebackType

    from barnabas.client.consumer.calls.consumer_iterator import ConsumerIterator
    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.errors import ClientError
    from barnabas.runtime.clock import Clock

__all__ = ["ConsumerCalls", "outcome_of"]

T = TypeVar("T")
_MS_PER_S = 1000.0
# Added to the timeout that a call keeps itself, so that the call's own error arrives first.
_GRACE_MS = 5_000.0
# Lower limit of a wait (ms) while the user's timeout has not passed. It prevents a busy loop when a
# deadline is already due.
_SHORTEST_MS = 1.0


class ConsumerCalls(ABC):
    """A context manager around every call; entering it checks that the consumer may be used."""

    __slots__ = ("_clock", "_core", "_iterator", "closings")

    def __init__(self, clock: Clock, core: ConsumerCore, iterator: ConsumerIterator) -> None:
        self._clock = clock
        self._core = core
        self._iterator = iterator
        # Number of `close` calls. A call that began with a smaller number ends with
        # ClientClosedError; calls that callbacks make during the close continue.
        self.closings = 0

    def __enter__(self) -> Self:
        self._begin()
        # Before the call, set positions to the records that the user has seen, and back to batches
        # that could not be decoded.
        corrupt = self._core.collector.pop_corrupt()
        self._iterator.give_back_unseen()
        if corrupt:
            self._core.positions.rewind_to(corrupt)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._end()

    @abstractmethod
    def _begin(self) -> None:
        """Raise unless a call may be made now."""

    @abstractmethod
    def _end(self) -> None:
        """End the call."""

    @abstractmethod
    def wakeup(self) -> None:
        """Make a waiting call check its condition again."""

    def check_open(self, begun: int) -> None:
        """Raise `ClientClosedError` if `close` was called since `closings` was `begun`."""
        if self.closings != begun:
            raise ClientClosedError("the consumer was closed during the call")

    def _check_interrupted(self, begun: int) -> None:
        """Raise if a waiting call must end because `wakeup` or `close` was called."""
        self._core.check_wakeup()
        self.check_open(begun)

    def _find_positions(self, begun: int) -> None:
        """Start the requests that partitions without a valid position need."""
        self._core.is_awake = False
        self._check_interrupted(begun)
        self._core.positions.update()

    def _default_ms(self) -> float:
        return self._core.config.default_api_timeout_ms

    def _limit_ms(self, timeout: float | None) -> float:
        """Convert the user's timeout in seconds to ms; None means default.api.timeout.ms."""
        return self._default_ms() if timeout is None else timeout * _MS_PER_S

    def _result_ms(self, timeout: float | None) -> float:
        """Return how long (ms) to wait for the end of a call.

        A call limits itself and reports its own error, but its last attempt may exceed the limit.
        """
        return self._default_ms() + _GRACE_MS if timeout is None else timeout * _MS_PER_S

    def _wait_ms(self, left_ms: float) -> float:
        """Return how long (ms) to wait for an event while the user has `left_ms` left."""
        due_ms = self._core.next_deadline_ms() - self._clock.monotonic_ms()
        return min(left_ms, max(due_ms, _SHORTEST_MS))

    def _timeout_error(self, subject: str, limit_ms: float) -> ClientTimeoutError:
        """Return the timeout error of a call, with the cause if a broker is unreachable."""
        cause = self._core.unreachable
        message = f"{subject} was not available within {limit_ms:.0f} ms"
        error = ClientTimeoutError(message if cause is None else f"{message}: {cause}")
        error.__cause__ = cause
        return error

    def _raise_callback_error(self) -> None:
        host = self._core.host
        error, host.callback_error = host.callback_error, None
        if error is not None:
            raise error


def outcome_of(ended: tuple[T | None, ClientError | None]) -> T:
    """Return the result of a call.

    Args:
        ended: Result and error of the call.

    Raises:
        ClientError: The call failed with this error.
    """
    result, error = ended
    if error is not None:
        raise error
    assert result is not None
    return result
