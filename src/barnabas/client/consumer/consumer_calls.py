"""Begin and end of a consumer's calls, parts of their plans, and iteration record by record.

A poll moves the positions after all records that it returns. If the user makes another call during
an iteration, the records that the user has not seen are given back first. So a commit covers
exactly the records that were iterated.
"""

from __future__ import annotations

from collections import deque
from operator import length_hint
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias, TypeVar

from barnabas.client.errors import ClientClosedError, ClientTimeoutError, CorruptRecordsError
from barnabas.client.session.plans import Until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.consumer.consumer_records import ConsumerRecords
    from barnabas.client.consumer.partition_records import PartitionRecords
    from barnabas.client.errors import ClientError
    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.client.retries import OnDone
    from barnabas.client.session.plans import WaitingPlan
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["ConsumerCalls", "ConsumerIterator", "outcome_of"]

T = TypeVar("T")
# A function that starts a call; the call ends by calling the given `OnDone`.
Start: TypeAlias = "Callable[[OnDone[T]], None]"
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
        self._core.collector.give_back(unseen)


class ConsumerCalls:
    """Core, clock and waits of a consumer's plans, and a context manager around every call.

    The consumers override how a call begins and ends.
    """

    __slots__ = ("_iterator", "clock", "closings", "cluster", "core")
    # Whether a call may begin while another call is still waiting.
    may_overlap: ClassVar[bool] = False

    def __init__(self, cluster: Cluster, core: ConsumerCore, iterator: ConsumerIterator) -> None:
        self.clock = cluster.runtime.clock
        self.cluster = cluster
        self.core = core
        self._iterator = iterator
        # Number of `close` calls. A call that began with a smaller number ends with
        # ClientClosedError; calls that callbacks make during the close continue.
        self.closings = 0

    def __enter__(self) -> Self:
        self._begin()
        # Before the call, set positions to the records that the user has seen, and back to batches
        # that could not be decoded.
        corrupt = self.core.collector.pop_corrupt()
        self._iterator.give_back_unseen()
        if corrupt:
            self.core.positions.rewind_to(corrupt)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _begin(self) -> None:
        """Raise unless a call may be made now."""

    def _end(self) -> None:
        """End the call."""

    def wakeup(self) -> None:
        """Make a waiting call check its condition again. Safe from any thread."""
        self.core.on_wake()

    def check_open(self, begun: int) -> None:
        """Raise `ClientClosedError` if `close` was called since `closings` was `begun`."""
        if self.closings != begun:
            raise ClientClosedError("the consumer was closed during the call")

    def check_interrupted(self, begun: int) -> None:
        """Raise if a waiting call must end because `wakeup` or `close` was called."""
        self.core.check_wakeup()
        self.check_open(begun)

    def limit_ms(self, timeout: float | None) -> float:
        """Convert the user's timeout in seconds to ms; None means default.api.timeout.ms."""
        default_ms = self.core.config.default_api_timeout_ms
        return default_ms if timeout is None else timeout * _MS_PER_S

    def event_before(self, deadline_ms: float, begun: int) -> Until:
        """Return a step that waits for an event, a wake-up or a `close`, until the deadline.

        Args:
            deadline_ms: The deadline on the monotonic clock.
            begun: The value of `closings` when the call began; a later `close` ends the wait.
        """
        core, now_ms = self.core, self.clock.monotonic_ms()
        left_ms, limit_ms = deadline_ms - now_ms, 0.0
        if left_ms > 0:
            limit_ms = min(left_ms, max(core.next_deadline_ms() - now_ms, _SHORTEST_MS))

        def is_interrupted() -> bool:
            return core.is_awake or core.is_wakeup_wanted or self.closings != begun

        return Until(is_interrupted, limit_ms)

    # Parts of plans

    def result(self, start: Start[T], subject: str, timeout: float | None = None) -> WaitingPlan[T]:
        """Start a call and wait for its result.

        Args:
            start: Starts the call.
            subject: The name of the call, for the message of a timeout.
            timeout: Seconds that the user gave; None for default.api.timeout.ms.

        Raises:
            ClientError: The call failed with this error.
            WakeupError: `wakeup` was called.
            ClientTimeoutError: The call did not end within the timeout.
        """
        outcomes: list[tuple[T | None, ClientError | None]] = []
        core, begun = self.core, self.closings

        def on_done(result: T | None, error: ClientError | None) -> None:
            outcomes.append((result, error))
            core.on_wake()

        def is_over() -> bool:
            return bool(outcomes) or core.is_wakeup_wanted or self.closings != begun

        start(on_done)
        limit_ms = self.limit_ms(timeout) + (_GRACE_MS if timeout is None else 0)
        yield Until(is_over, limit_ms)
        if not outcomes:
            self.check_interrupted(begun)
            raise self.timeout_error(subject, limit_ms)
        return outcome_of(outcomes[0])

    def run_steps(self, predicate: Callable[[], bool], deadline_ms: float) -> WaitingPlan[None]:
        """Run pending steps of the membership until `predicate` holds or the deadline passes."""
        core = self.core
        while not predicate():
            core.is_awake = False
            core.host.run_scheduled()
            left_ms = deadline_ms - self.clock.monotonic_ms()
            if predicate() or left_ms <= 0:
                return
            yield Until(lambda: core.is_awake or predicate(), left_ms)

    def close_core(self, timeout_ms: float) -> WaitingPlan[None]:
        """Commit, leave the group and stop the core, within `timeout_ms`."""
        core = self.core
        deadline_ms = self.clock.monotonic_ms() + timeout_ms
        ended: list[bool] = []
        try:
            self._iterator.give_back_unseen()
            yield from self.run_steps(lambda: core.commits.is_idle, deadline_ms)
            core.begin_close(timeout_ms, lambda: ended.append(True))
            yield from self.run_steps(lambda: bool(ended), deadline_ms)
            core.commits.run_callbacks()
        finally:
            core.stop()

    def timeout_error(self, subject: str, limit_ms: float) -> ClientTimeoutError:
        """Return the timeout error of a call, with the cause if a broker is unreachable."""
        cause = self.core.unreachable
        message = f"{subject} was not available within {limit_ms:.0f} ms"
        error = ClientTimeoutError(message if cause is None else f"{message}: {cause}")
        error.__cause__ = cause
        return error

    def raise_callback_error(self) -> None:
        """Raise the exception of the user's callback that a leave or close has kept."""
        host = self.core.host
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
