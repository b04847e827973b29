"""Begin and end of a consumer's calls, and iteration record by record.

A poll moves the positions after all records that it returns. If the user makes another call during
an iteration, the records that the user has not seen are given back first. So a commit covers
exactly the records that were iterated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from operator import length_hint
from typing import TYPE_CHECKING, Self, TypeVar

from barnabas.client.errors import ClientClosedError, ClientTimeoutError, CorruptRecordsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.consumer.records.consumer_records import ConsumerRecords
    from barnabas.client.consumer.records.partition_records import PartitionRecords
    from barnabas.client.errors import ClientError
    from barnabas.client.fetch.record_decoding import ConsumerRecord
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.runtime.clock import Clock

__all__ = ["ConsumerCalls", "ConsumerIterator", "outcome_of"]

T = TypeVar("T")
_MS_PER_S = 1000.0
# Added to the timeout that a call keeps itself, so that the call's own error arrives first.
_GRACE_MS = 5_000.0
# Lower limit of a wait (ms) while the user's timeout has not passed. It prevents a busy loop when a
# deadline is already due.
_SHORTEST_MS = 1.0


class ConsumerIterator:
    """The records of the last poll, and how many of them the user has seen.

    Attributes:
        rows: A list iterator over the records; `length_hint` returns how many are left.
    """

    __slots__ = ("_core", "_error", "_parts", "rows")

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        # For each partition: the number of records in `rows` at its start, and the number in the
        # poll. The first is smaller if a batch could not be decoded.
        self._parts: dict[TopicPartition, tuple[int, int]] = {}
        # The error of a batch that cannot be decoded, or None; raised after the records before the
        # batch.
        self._error: CorruptRecordsError | None = None
        self.rows: Iterator[ConsumerRecord] = iter([])

    def begin(self, records: ConsumerRecords) -> None:
        """Start to iterate over the records of a poll."""
        rows: list[ConsumerRecord] = []
        for tp, part in records.items():
            readable = self._readable(part)
            rows += readable
            self._parts[tp] = (len(readable), len(part))
        self.rows = iter(rows)

    def _readable(self, part: PartitionRecords) -> list[ConsumerRecord]:
        try:
            return list(part)
        except CorruptRecordsError as error:
            self._error = self._error or error
            return list(part.before(error.offset))

    def check(self) -> None:
        """Raise the pending decode error, once all readable records were iterated.

        Raises:
            CorruptRecordsError: A batch of the last poll could not be decoded.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error

    @property
    def has_rows(self) -> bool:
        """Whether there are records left."""
        return length_hint(self.rows) > 0

    def give_back_unseen(self) -> None:
        """Give the records that the user has not seen back to the consumer."""
        parts, self._parts = self._parts, {}
        if not self.has_rows:
            return
        seen = sum(readable for readable, _ in parts.values()) - length_hint(self.rows)
        # Exhaust the iterator, so that a loop over it ends.
        deque(self.rows, maxlen=0)
        unseen = {}
        for tp, (readable, whole) in parts.items():
            here = min(seen, readable)
            seen -= here
            if here < whole:
                unseen[tp] = whole - here
        self._core.give_back(unseen)


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
