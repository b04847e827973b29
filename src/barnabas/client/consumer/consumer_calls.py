"""How calls of a consumer begin and end, in what both faces have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self, TypeVar

from barnabas.client.errors import ClientClosedError, ClientTimeoutError

if TYPE_CHECKING:
    from types import TracebackType

    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.consumer.consumer_iterator import ConsumerIterator
    from barnabas.client.errors import ClientError
    from barnabas.runtime.clock import Clock

__all__ = ["ConsumerCalls", "outcome_of"]

T = TypeVar("T")
_MS_PER_S = 1000.0
# Beyond the time-out that a call keeps itself: time for its own error to arrive.
_GRACE_MS = 5_000.0
# A wait is at least so long while the user's time is not over: whatever is due, nothing spins.
_SHORTEST_MS = 1.0


class ConsumerCalls(ABC):
    """A context manager around every call: it is entered if the consumer may be used."""

    __slots__ = ("_clock", "_core", "_iterator", "closings")

    def __init__(self, clock: Clock, core: ConsumerCore, iterator: ConsumerIterator) -> None:
        self._clock = clock
        self._core = core
        self._iterator = iterator
        # Counts the calls of `close`: whatever waited before ends, and callbacks of its own go on.
        self.closings = 0

    def __enter__(self) -> Self:
        self._begin()
        # Positions are where the user stands, and at what he could not read.
        corrupt = self._core.buffer.corrupt_since()
        self._iterator.settle()
        if corrupt:
            self._core.positions.go_back_to(corrupt)
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
        """Raise unless a call may be made."""

    @abstractmethod
    def _end(self) -> None:
        """A call is over."""

    @abstractmethod
    def wakeup(self) -> None:
        """Have a wait look at what it waits for."""

    def check_open(self, begun: int) -> None:
        """Raise if `close` was called since `closings` was `begun`."""
        if self.closings != begun:
            raise ClientClosedError("the consumer was closed during the call")

    def _check_going(self, begun: int) -> None:
        """Raise if a waiting call is to end: `wakeup` or `close` was called."""
        self._core.check_wakeup()
        self.check_open(begun)

    def _find_positions(self, begun: int) -> None:
        """Take the search for positions one step further."""
        self._core.is_awake = False
        self._check_going(begun)
        self._core.positions.update()

    def _default_ms(self) -> float:
        return self._core.config.default_api_timeout_ms

    def _limit_ms(self, timeout: float | None) -> float:
        """A time-out of the user's, in seconds, or the usual one."""
        return self._default_ms() if timeout is None else timeout * _MS_PER_S

    def _result_ms(self, timeout: float | None) -> float:
        """How long the end of a call is waited for.

        A call bounds itself and says what it failed for, but one attempt may outlast its time.
        """
        return self._default_ms() + _GRACE_MS if timeout is None else timeout * _MS_PER_S

    def _wait_ms(self, left_ms: float) -> float:
        """How long to wait for news while the user has this much time left."""
        due_ms = self._core.next_deadline_ms() - self._clock.monotonic_ms()
        return min(left_ms, max(due_ms, _SHORTEST_MS))

    def _late(self, what: str, limit_ms: float) -> ClientTimeoutError:
        """The error of a wait whose time is over; with why, if a broker is not to be reached."""
        why = self._core.unreachable
        late = f"{what} was not to be had within {limit_ms:.0f} ms"
        error = ClientTimeoutError(late if why is None else f"{late}: {why}")
        error.__cause__ = why
        return error

    def _raise_callback_error(self) -> None:
        host = self._core.host
        error, host.callback_error = host.callback_error, None
        if error is not None:
            raise error


def outcome_of(ended: tuple[T | None, ClientError | None]) -> T:
    """What a call ended with.

    Raises:
        ClientError: it failed.
    """
    result, error = ended
    if error is not None:
        raise error
    assert result is not None
    return result
