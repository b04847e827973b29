"""A state machine over one state partition, its states and timers (Kafka's CoordinatorShard).

            LOADED
LOADING ---------------> ACTIVE
   |  \\                    |
   |   \\ CLOSED            | CLOSED
   |    +------> CLOSED <--+
   | LOADING_FAILED   ^
   +--------> FAILED -+ CLOSED
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.record.batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord, CoordinatorResult
    from barnabas.runtime.clock import Clock
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

    Operation = Callable[[], CoordinatorResult[None]]


class ShardState(Enum):
    """The state of a shard. The values are tags of a metric."""

    # The log is replayed. Requests get COORDINATOR_LOAD_IN_PROGRESS.
    LOADING = "loading"
    # The shard handles requests and timers.
    ACTIVE = "active"
    # The log could not be read. Requests get NOT_COORDINATOR. The next leader epoch loads again.
    FAILED = "failed"
    # This broker lost the leadership, or it stops. This state is final.
    CLOSED = "closed"


class ShardEvent(Enum):
    """An event that changes the state of a shard."""

    # The whole log is replayed.
    LOADED = "loaded"
    # The log is unreadable, or its partition is not online.
    LOADING_FAILED = "loading failed"
    # The broker resigned, was elected in a newer leader epoch, or stops.
    CLOSED = "closed"


# Next state by event. An event that a state lacks cannot happen in it.
SHARD_STATES: dict[ShardState, dict[ShardEvent, ShardState]] = {
    ShardState.LOADING: {
        ShardEvent.LOADED: ShardState.ACTIVE,
        ShardEvent.LOADING_FAILED: ShardState.FAILED,
        ShardEvent.CLOSED: ShardState.CLOSED,
    },
    ShardState.ACTIVE: {ShardEvent.CLOSED: ShardState.CLOSED},
    ShardState.FAILED: {ShardEvent.CLOSED: ShardState.CLOSED},
    ShardState.CLOSED: {},
}


class Shard(Protocol):
    """State that is derived from records only.

    Requests read the state and create records; `replay` changes the state. Reads must not show
    replayed records before their commit, so that no failover can revert a response. Requests and
    timers may directly change state that a new leader does not need, such as sessions and pending
    responses.
    """

    __slots__ = ()

    def replay(
        self, offset: int, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record of the log.

        Args:
            offset: the offset of the record; increases from call to call.
            key: starts with the record type. A record of an unknown type is ignored.
            value: starts with the version; None for a tombstone.
            producer_id: the producer of the record's transaction; -1 without one.

        Raises:
            ProtocolError: the record is unreadable or inconsistent. The state ignores it and stays
                consistent.
        """
        ...

    def replay_written(
        self, offset: int, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record that this broker has just written, like `replay`."""
        self.replay(offset, record.key, record.value, producer_id)

    def replay_end_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """Apply (commit) or discard (abort) the records of a producer's open transaction.

        Args:
            offset: the offset of the marker.
            producer_id: the producer of the transaction.
            is_commit: whether the transaction is committed.
        """
        ...

    def commit(self, end_offset: int) -> None:
        """Make all records below `end_offset` visible to reads, since they are committed."""
        ...

    def on_loaded(self) -> None:
        """Start work after the whole log is replayed and committed. Requests follow."""
        ...

    def on_unloaded(self) -> None:
        """Fail all pending requests, since this broker lost the leadership.

        This is the last call.
        """
        ...


# Delay after a failed operation, in ms. It doubles with each failure in a row, up to the maximum.
RETRY_MS = 500
RETRY_MS_MAX = 60_000


class _Delay:
    """One timer."""

    __slots__ = ("due_ms", "entry", "failures", "operation")

    def __init__(self, due_ms: float, operation: Operation) -> None:
        # Expiry in monotonic ms.
        self.due_ms = due_ms
        self.operation = operation
        # Number of failures in a row.
        self.failures = 0
        # Entry in the wheel, at `due_ms` or earlier. When it fires early, it is added again.
        self.entry: WheelEntry


class ShardTimers:
    """Operations that run later, unless they are postponed or canceled (Kafka's CoordinatorTimer).

    Their records are written. All timers end with the shard's leadership. A timer whose operation
    raises runs again after a backoff: otherwise an expired member would stay forever, and periodic
    work would end.

    Each heartbeat postpones a session timer, and sessions rarely expire. So a postponed timer keeps
    its entry in the wheel, and is added again when the entry fires.
    """

    __slots__ = ("_clock", "_delays", "_is_closed", "_on_failure", "_run", "_wheel")

    def __init__(
        self,
        wheel: TimingWheel,
        clock: Clock,
        run: Callable[[Operation], None],
        on_failure: Callable[[Hashable], None],
    ) -> None:
        """Create the timers of a shard.

        Args:
            wheel: the delays.
            clock: the monotonic clock.
            run: runs an operation and writes its records.
            on_failure: called with the key of a timer while the exception of its operation is
                handled.
        """
        self._wheel = wheel
        self._clock = clock
        self._run = run
        self._on_failure = on_failure
        # Scheduled timers by key. Invariant: each has an entry in the wheel.
        self._delays: dict[Hashable, _Delay] = {}
        # Set by `close`; never reset. A closed shard schedules no timers.
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._delays)

    def schedule(self, key: Hashable, delay_ms: float, operation: Operation) -> None:
        """Run `operation` after `delay_ms`, instead of the key's previous operation."""
        if self._is_closed:
            return
        due_ms = self._clock.monotonic_ms() + delay_ms
        delay = self._delays.get(key)
        if delay is not None:
            if delay.due_ms <= due_ms:
                delay.due_ms = due_ms
                delay.operation = operation
                return
            delay.entry.cancel()
        delay = self._delays[key] = _Delay(due_ms, operation)
        delay.entry = self._wheel.add(delay_ms, partial(self._on_due, key, delay))

    def is_scheduled(self, key: Hashable) -> bool:
        """Whether the key has a timer."""
        return key in self._delays

    def cancel(self, key: Hashable) -> None:
        """Cancel the key's timer, if any."""
        delay = self._delays.pop(key, None)
        if delay is not None:
            delay.entry.cancel()

    def close(self) -> None:
        """Cancel all timers permanently."""
        self._is_closed = True
        for delay in self._delays.values():
            delay.entry.cancel()
        self._delays.clear()

    def _on_due(self, key: Hashable, delay: _Delay) -> None:
        left_ms = delay.due_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            delay.entry = self._wheel.add(left_ms, partial(self._on_due, key, delay))
            return
        del self._delays[key]
        try:
            self._run(delay.operation)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - `_on_failure` reports it, and the timer is retried
            self._on_failure(key)
            self._retry(key, delay)

    def _retry(self, key: Hashable, failed: _Delay) -> None:
        """Run a failed operation again, or the one that it has scheduled, after the backoff."""
        delay_ms = min(RETRY_MS * 2.0**failed.failures, RETRY_MS_MAX)
        if key not in self._delays:
            self.schedule(key, delay_ms, failed.operation)
        again = self._delays.get(key)
        if again is not None:
            again.due_ms = max(again.due_ms, self._clock.monotonic_ms() + delay_ms)
            again.failures = failed.failures + 1


class ShardContext(msgspec.Struct, frozen=True):
    """The state partition of a shard, its leader epoch, and its timers."""

    topic_partition: TopicPartition
    # The epoch in which this broker leads the partition: the coordinator epoch.
    leader_epoch: int
    # Timers of this shard. They run once it is active, and end with it.
    timers: ShardTimers
