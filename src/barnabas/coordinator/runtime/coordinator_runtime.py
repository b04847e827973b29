"""Runs coordinator shards over their partitions (Kafka's CoordinatorRuntime).

The driver loads state from the log, appends new records, and holds responses until the records are
committed.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from barnabas.coordinator.runtime.loader import Loader
from barnabas.coordinator.runtime.shard import Shard
from barnabas.coordinator.runtime.shard_timers import ShardTimers
from barnabas.protocol.errors import ErrorCode
from barnabas.record.builder import BatchBuilder
from barnabas.storage.append_info import AppendOrigin
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.executor import Executor
    from barnabas.runtime.timer import Timer
    from barnabas.waiting.timing_wheel import TimingWheel

_log = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)
R = TypeVar("R")

_ACKS_ALL = -1


class StateLog(Protocol):
    """The part of the replica manager that reads and writes state partitions."""

    def partition(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """Return the partition if it is online on this broker, else an error."""
        ...

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: dict[TopicPartition, memoryview],
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> object:
        """Append records.

        `on_done` is called after commit or failure, perhaps before this returns.
        """
        ...


class RuntimeDependencies(msgspec.Struct, frozen=True):
    """The collaborators and settings of a driver."""

    log: StateLog
    clock: Clock
    timer: Timer
    wheel: TimingWheel
    # Decompresses large batches during loading.
    executor: Executor
    # Time limit of a write until its commit, in ms.
    write_timeout_ms: int = 5_000
    # Compression of the state records (record.compression).
    compression: int = 0


class ShardState(Enum):
    """The lifecycle states of a shard."""

    LOADING = "loading"
    ACTIVE = "active"
    # The log could not be read (the next leader epoch retries), or the broker stops.
    FAILED = "failed"


class _Held:
    """A response that is held until all records below `end_offset` are committed."""

    __slots__ = ("answer", "end_offset", "is_done", "on_outcome", "outcome")

    def __init__(self, answer: Callable[[ErrorCode], None]) -> None:
        self.answer = answer
        self.end_offset = -1
        self.is_done = False
        # Result of the append; None before it is known.
        self.outcome: ProduceResult | None = None
        # Callback for the result, set after the replay. A result that arrives earlier is only
        # stored.
        self.on_outcome: Callable[[], None] | None = None

    def note(self, results: dict[TopicPartition, ProduceResult]) -> None:
        (self.outcome,) = results.values()
        # Cleared, since the callback refers to this object.
        on_outcome, self.on_outcome = self.on_outcome, None
        if on_outcome is not None:
            on_outcome()

    def finish(self, error: ErrorCode) -> None:
        if not self.is_done:
            self.is_done = True
            self.answer(error)


class _Running(Generic[S]):
    """A shard with its leadership, timers and held responses."""

    __slots__ = (
        "held",
        "key",
        "leader_epoch",
        "loaded_end",
        "loader",
        "shard",
        "state",
        "timers",
        "written_end",
    )

    shard: S

    def __init__(self, key: TopicPartition, leader_epoch: int) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.timers: ShardTimers
        self.state = ShardState.LOADING
        self.loader: Loader | None = None
        # Held responses, in the order of their end offsets.
        self.held: deque[_Held] = deque()
        # End offset (exclusive) of the last record written in this leader epoch.
        self.written_end = 0
        # End offset of the loaded log until the high watermark reaches it, then None. A new
        # leader's high watermark lags: records below this offset may be committed and acknowledged.
        # Reads that ignore these records could show decreasing offsets.
        self.loaded_end: int | None = None


class CoordinatorRuntime(Generic[S]):
    """The shards of the state partitions that this broker leads."""

    def __init__(
        self, topic: str, parts: RuntimeDependencies, make_shard: Callable[[ShardTimers], S]
    ) -> None:
        self.topic = topic
        self._parts = parts
        self._make_shard = make_shard
        self._running: dict[int, _Running[S]] = {}
        # Number of damaged records that loading has skipped since the start.
        self.skipped_records = 0

    # Leadership.

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load the partition after this broker became its leader. Ignore a repeated epoch."""
        known = self._running.get(partition)
        if known is not None:
            if known.leader_epoch >= leader_epoch:
                return
            self.on_resigned(partition)
        key = TopicPartition(self.topic, partition)
        found = self._parts.log.partition(key)
        if isinstance(found, ErrorCode):
            _log.error("cannot load %s: %s", key, found.name)
            return
        running: _Running[S] = _Running(key, leader_epoch)
        running.timers = ShardTimers(
            self._parts.wheel, self._parts.clock, partial(self._on_timer, running)
        )
        running.shard = self._make_shard(running.timers)
        running.loader = Loader(
            found.log,
            running.shard,
            self._parts.timer,
            self._parts.executor,
            partial(self._on_loaded, running),
        )
        self._running[partition] = running
        running.loader.start()

    def on_resigned(self, partition: int) -> None:
        """Drop the partition's state after the loss of its leadership. Fail held responses."""
        running = self._running.pop(partition, None)
        if running is None:
            return
        if running.loader is not None:
            running.loader.cancel()
        running.timers.close()
        running.shard.on_unloaded()
        for held in running.held:
            held.finish(ErrorCode.NOT_COORDINATOR)

    def shutdown(self) -> None:
        """Stop all shards. New requests get NOT_COORDINATOR; held responses complete at commit."""
        for running in self._running.values():
            if running.loader is not None:
                running.loader.cancel()
            running.state = ShardState.FAILED
            running.timers.close()
            running.shard.on_unloaded()

    def _on_loaded(self, running: _Running[S], succeeded: bool) -> None:
        if running.loader is not None:
            self.skipped_records += running.loader.skips
        running.loader = None
        found = self._parts.log.partition(running.key)
        if not succeeded or isinstance(found, ErrorCode):
            running.state = ShardState.FAILED
            return
        running.state = ShardState.ACTIVE
        running.written_end = running.loaded_end = found.log.log_end_offset
        self._advance(running)
        running.shard.on_loaded()

    def state(self, partition: int) -> ShardState | None:
        """Return the state of a shard, or None if this broker does not lead the partition."""
        running = self._running.get(partition)
        return None if running is None else running.state

    def active(self) -> list[S]:
        """Return the loaded shards."""
        return [each.shard for each in self._running.values() if each.state is ShardState.ACTIVE]

    def counts(self) -> dict[ShardState, int]:
        """Return the number of shards in each state."""
        found = dict.fromkeys(ShardState, 0)
        for running in self._running.values():
            found[running.state] += 1
        return found

    def shards(self) -> list[S]:
        """Return all shards, including those that are being loaded."""
        return [each.shard for each in self._running.values()]

    @property
    def is_loading(self) -> bool:
        """Whether a shard is being loaded."""
        return any(each.state is ShardState.LOADING for each in self._running.values())

    def _find(self, partition: int) -> _Running[S] | ErrorCode:
        running = self._running.get(partition)
        if running is None or running.state is ShardState.FAILED:
            return ErrorCode.NOT_COORDINATOR
        if running.state is ShardState.LOADING or not self._is_proven(running):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return running

    def _is_proven(self, running: _Running[S]) -> bool:
        """Whether all loaded records are known to be committed."""
        if running.loaded_end is None:
            return True
        found = self._parts.log.partition(running.key)
        if isinstance(found, ErrorCode) or found.log.high_watermark < running.loaded_end:
            return False
        running.loaded_end = None
        return True

    # Requests.

    def read(self, partition: int, operation: Callable[[S], R]) -> R | ErrorCode:
        """Return the result of `operation` on committed state.

        Returns:
            The result, or NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or UNKNOWN_SERVER_ERROR if
            `operation` raises.
        """
        running = self._find(partition)
        if isinstance(running, ErrorCode):
            return running
        self._advance(running)
        try:
            return operation(running.shard)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the request fails, the shard goes on
            _log.exception("Unexpected error while reading the state of %s", running.key)
            return ErrorCode.UNKNOWN_SERVER_ERROR

    def write(
        self,
        partition: int,
        operation: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | None, ErrorCode], None],
    ) -> None:
        """Run `operation`, append and replay its records, and answer after their commit.

        Args:
            partition: the state partition.
            operation: returns the records. It must not change the state that the records replay.
            on_done: gets the response and NONE, or None and the error; may be called before this
                returns.
        """
        running = self._find(partition)
        if isinstance(running, ErrorCode):
            on_done(None, running)
            return
        try:
            result = operation(running.shard)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the request fails, the shard goes on
            # As in Kafka's CoordinatorRuntime, only this request fails.
            _log.exception("Unexpected error in a request to %s", running.key)
            on_done(None, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._write(running, result, on_done)

    def batch_bytes_max(self, partition: int) -> int:
        """Return the maximum size of a batch of the partition's state, in bytes.

        There is no limit for compressed batches, since the size of their records does not determine
        the batch size. There is also none if the partition is not on this broker: then the write
        fails.
        """
        if self._parts.compression:
            return sys.maxsize
        found = self._parts.log.partition(TopicPartition(self.topic, partition))
        return sys.maxsize if isinstance(found, ErrorCode) else found.log.config.max_message_bytes

    def _on_timer(
        self, running: _Running[S], operation: Callable[[], CoordinatorResult[None]]
    ) -> None:
        """Run the operation of an expired timer. Only active shards have open timers."""
        assert running.state is ShardState.ACTIVE, running.state
        self._write(running, operation(), _ignore)

    def _write(
        self,
        running: _Running[S],
        result: CoordinatorResult[R],
        on_done: Callable[[R | None, ErrorCode], None],
    ) -> None:
        def answer(error: ErrorCode) -> None:
            if result.on_appended is not None:
                result.on_appended(error)
            on_done(result.response if error is ErrorCode.NONE else None, error)

        held = _Held(answer)
        if result.records:
            self._append(running, result, held)
            return
        # The response may depend on uncommitted records: hold it until their commit.
        held.end_offset = running.written_end
        running.held.append(held)
        self._advance(running)
        if not held.is_done:
            # No purgatory times out a write without records.
            parts = self._parts
            parts.wheel.add(
                parts.write_timeout_ms, lambda: held.finish(ErrorCode.REQUEST_TIMED_OUT)
            )

    def _append(self, running: _Running[S], result: CoordinatorResult[R], held: _Held) -> None:
        records = result.records
        batch = self._batch(records)
        parts = self._parts
        parts.log.append_records(
            parts.write_timeout_ms,
            _ACKS_ALL,
            {running.key: memoryview(batch)},
            AppendOrigin.COORDINATOR,
            held.note,
        )
        outcome = held.outcome
        if outcome is not None and outcome.base_offset < 0:
            held.finish(outcome.error)
            return
        end_offset = self._end_of(running, outcome)
        if result.is_replayed:
            for offset, record in enumerate(records, end_offset - len(records)):
                running.shard.replay(offset, record.key, record.value)
        running.written_end = held.end_offset = end_offset
        running.held.append(held)
        if outcome is not None:
            self._on_outcome(running, held)
        else:
            held.on_outcome = partial(self._on_outcome, running, held)

    def _batch(self, records: list[CoordinatorRecord]) -> bytearray:
        builder = BatchBuilder(compression=self._parts.compression)
        now_ms = self._parts.clock.wall_ms()
        for record in records:
            builder.append(now_ms, record.key, record.value)
        return builder.build()

    def _end_of(self, running: _Running[S], outcome: ProduceResult | None) -> int:
        if outcome is not None:
            return outcome.last_offset + 1
        found = self._parts.log.partition(running.key)
        assert not isinstance(found, ErrorCode), "an append waits in a partition that is not there"
        return found.log.log_end_offset

    def _on_outcome(self, running: _Running[S], held: _Held) -> None:
        """Complete the held response after the append.

        A failed append may still be committed later.
        """
        assert held.outcome is not None
        if held.outcome.error is not ErrorCode.NONE:
            held.finish(held.outcome.error)
        self._advance(running)

    def _advance(self, running: _Running[S]) -> None:
        """Make committed records visible to reads, and send the responses held for them."""
        found = self._parts.log.partition(running.key)
        if isinstance(found, ErrorCode):
            return
        high_watermark = found.log.high_watermark
        running.shard.commit(high_watermark)
        held = running.held
        while held and (held[0].is_done or held[0].end_offset <= high_watermark):
            held.popleft().finish(ErrorCode.NONE)


def _ignore(_response: None, _error: ErrorCode) -> None:
    """Ignore the outcome: a timer has no client. `on_appended` handles errors."""
