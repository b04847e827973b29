"""Writes to a state partition in one turn of the event loop, which share a batch.

An append costs as much as several heartbeats. When thousands of members join their groups, one turn
has many writes to a state partition. They are appended together at the end of the turn, instead of
after a delay as in Kafka (`append.linger.ms`).

The writes have different keys, for example group ids. Their records are replayed after the append.
Until then, the state of these keys does not contain them, so no operation may use it. If the append
fails, there is nothing to undo, except in classic groups, which change at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult

# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE
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
    """The writes of one state partition that are not appended yet."""

    __slots__ = ("_bytes", "_writes")

    def __init__(self) -> None:
        # By key, in the order of the operations.
        self._writes: dict[str, Write] = {}
        # Total size of the keys and values of their records.
        self._bytes = 0

    def __contains__(self, key: str) -> bool:
        """Whether the key has a pending write."""
        return key in self._writes

    def __len__(self) -> int:
        return len(self._writes)

    def add(self, key: str, write: Write) -> bool:
        """Add the write of a key that has no pending one. Return whether there is room for more."""
        assert key not in self._writes, f"StateFollowsLog: key={key} has two pending writes"
        self._writes[key] = write
        for each in write.result.records:
            self._bytes += len(each.key) + len(each.value or b"")
        return self._bytes < _BYTES_MAX

    def take(self) -> list[Write]:
        """Remove and return all writes."""
        writes = list(self._writes.values())
        self._writes.clear()
        self._bytes = 0
        return writes


def records_of(writes: list[Write]) -> list[CoordinatorRecord]:
    """Return the records of all writes."""
    return [record for each in writes for record in each.result.records]


def respond_to(writes: list[Write], error: ErrorCode) -> None:
    """Send the responses of all writes, or the error."""
    for each in writes:
        each.respond(error)
