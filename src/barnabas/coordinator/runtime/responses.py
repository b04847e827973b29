"""Responses that wait for the commit of records.

A write operation returns its response, and the runtime sends the response after the commit of the
operation's records (`HeldResponse`, Kafka's DeferredEvent).

An append costs as much as several heartbeats. When thousands of members join their groups, one turn
of the event loop has many writes to a state partition. They are appended together at the end of the
turn (`JointWrites`), instead of after a delay as in Kafka (`append.linger.ms`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord, CoordinatorResult
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.timing_wheel import WheelEntry


_SIZE_ERRORS = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
    }
)
_CLIENT_ERRORS = {
    # The client looks up the coordinator again and retries.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def client_error(
    error: ErrorCode, size_error: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
) -> ErrorCode:
    """Return the error for the client after a write (Kafka's handleOperationException).

    Args:
        error: the error of the write.
        size_error: the error for records that are too large for a batch of the state partition.
    """
    return size_error if error in _SIZE_ERRORS else _CLIENT_ERRORS.get(error, error)


# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


class HeldResponse:
    """A response that is held until all records below `end_offset` are committed."""

    __slots__ = ("_send", "end_offset", "is_done", "on_outcome", "outcome", "timeout")

    def __init__(self, send: Callable[[ErrorCode], None]) -> None:
        # Sends the response (NONE) or the error. Called once, by `finish`.
        self._send = send
        # End offset (exclusive) of the records on which the response depends; -1 until it is known.
        self.end_offset = -1
        # Whether the response or the error was sent.
        self.is_done = False
        # Result of the append; None until it is known, and always None without records.
        self.outcome: ProduceResult | None = None
        # Called with no argument when the result is known. Set after the replay of the records. A
        # result that arrives earlier is only stored.
        self.on_outcome: Callable[[], None] | None = None
        # The timer that sends REQUEST_TIMED_OUT; None without one. Canceled by `finish`.
        self.timeout: WheelEntry | None = None

    def note_outcome(self, results: dict[TopicPartition, ProduceResult]) -> None:
        """Store the result of the append of one batch."""
        assert self.outcome is None, (self.outcome, results)
        (self.outcome,) = results.values()
        # Cleared, since the callback refers to this object.
        on_outcome, self.on_outcome = self.on_outcome, None
        if on_outcome is not None:
            on_outcome()

    def reject(self) -> None:
        """Send the error with which the log has rejected the batch."""
        assert self.outcome is not None, "the log has no result"
        self.finish(self.outcome.error)

    def finish(self, error: ErrorCode) -> None:
        """Send the response, or the error. Do nothing if it was sent before."""
        assert self.end_offset >= 0 or error is not _NONE, (
            f"StateFollowsLog: a response is sent before its write, end_offset={self.end_offset}"
        )
        if not self.is_done:
            self.is_done = True
            if self.timeout is not None:
                self.timeout.cancel()
            self._send(error)


# A shared batch with more bytes of keys and values is appended before the end of the turn.
_BYTES_MAX = 16 * 1024


class Write(msgspec.Struct):
    """The result of an operation, and the receiver of its response."""

    result: CoordinatorResult[Any]
    on_done: Callable[[Any, ErrorCode], None]

    def respond(self, error: ErrorCode) -> None:
        """Send the response, or the error."""
        if self.result.on_appended is not None:
            self.result.on_appended(error)
        self.on_done(self.result.response if error is _NONE else None, error)


class JointWrites:
    """The writes of one state partition that are not appended yet.

    They have different keys, for example group ids. Their records are replayed after the append.
    Until then, the state of these keys does not contain them, so no operation may use it. If the
    append fails, there is nothing to undo, except in classic groups, which change at once.
    """

    __slots__ = ("_bytes", "writes")

    def __init__(self) -> None:
        # By key, in the order of the operations. Only `add` and `take` change it.
        self.writes: dict[str, Write] = {}
        # Total size of the keys and values of their records.
        self._bytes = 0

    def add(self, key: str, write: Write) -> bool:
        """Add the write of a key that has no pending one. Return whether there is room for more."""
        assert key not in self.writes, f"StateFollowsLog: key={key} has two pending writes"
        self.writes[key] = write
        for each in write.result.records:
            self._bytes += len(each.key) + len(each.value or b"")
        return self._bytes < _BYTES_MAX

    def take(self) -> list[Write]:
        """Remove and return all writes."""
        writes = list(self.writes.values())
        self.writes.clear()
        self._bytes = 0
        return writes


def records_of(writes: list[Write]) -> list[CoordinatorRecord]:
    """Return the records of all writes."""
    return [record for each in writes for record in each.result.records]


def respond_to(writes: list[Write], error: ErrorCode) -> None:
    """Send the responses of all writes, or the error."""
    for each in writes:
        each.respond(error)
