"""One state partition that this broker leads: its shard, and the responses held for its records."""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.coordinator.runtime.coordinator_record import build_end_marker
from barnabas.coordinator.runtime.loader import Loader
from barnabas.coordinator.runtime.responses import (
    HeldResponse,
    JointWrites,
    Write,
    records_of,
    respond_to,
)
from barnabas.coordinator.runtime.shard import (
    SHARD_STATES,
    Shard,
    ShardContext,
    ShardEvent,
    ShardState,
    ShardTimers,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import NO_PRODUCER_ID
from barnabas.record.builder import BatchBuilder
from barnabas.storage.results import AppendOrigin
from barnabas.waiting.state_machine import state_after

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.coordinator.runtime.coordinator_record import (
        CoordinatorRecord,
        CoordinatorResult,
        TransactionalProducer,
        TransactionEnding,
    )
    from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)
R = TypeVar("R")

# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE
_ACTIVE = ShardState.ACTIVE
_COORDINATOR = AppendOrigin.COORDINATOR

_ACKS_ALL = -1
# Key of the timers of operations that expired during loading, with their number.
_EARLY = "early"
# Limit of a check of this broker's leadership: many round trips to a follower.
_CONFIRMATION_MS_MAX = 1_000.0


class StatePartition(Generic[S]):
    """The runtime's part of one state partition in one leader epoch (Kafka's CoordinatorContext).

    A write is: operation -> (response, records) -> append -> replay -> commit -> response.
    """

    __slots__ = (
        "_dependencies",
        "_early_operations",
        "_has_moved",
        "_held",
        "_is_appending",
        "_is_sending",
        "_joint",
        "_loaded_end",
        "_loader",
        "_shown_end",
        "_timers",
        "_written_end",
        "failed_timers",
        "key",
        "leader_epoch",
        "shard",
        "skipped_records",
        "state",
    )

    shard: S

    def __init__(
        self,
        key: TopicPartition,
        leader_epoch: int,
        dependencies: RuntimeDependencies,
        make_shard: Callable[[ShardContext], S],
    ) -> None:
        self._dependencies = dependencies
        self.key = key
        self.leader_epoch = leader_epoch
        self._timers = ShardTimers(
            dependencies.wheel, dependencies.clock, self._on_timer, self._on_timer_failure
        )
        self.shard = make_shard(ShardContext(key, leader_epoch, self._timers))
        # Changed by `_on_event` only.
        self.state = ShardState.LOADING
        # Set while the state is LOADING.
        self._loader: Loader | None = None
        # Number of damaged records that loading has skipped. Final when loading ends.
        self.skipped_records = 0
        # Number of operations of timers that raised an exception. Only increases.
        self.failed_timers = 0
        # Held responses, in the order of their writes. Invariant: their end offsets never decrease.
        self._held: deque[HeldResponse] = deque()
        # End offset (exclusive) of the last record that is loaded, or written in this leader epoch.
        # Set when the log is loaded. Each append increases it.
        self._written_end = 0
        # End offset (exclusive) of the records that reads see; -1 until the log is loaded.
        self._shown_end = -1
        # End offset of the loaded log until the high watermark reaches it, then None. A new
        # leader's high watermark lags: records below this offset may be committed and acknowledged.
        # Requests and timers that ignored these records could revert them.
        self._loaded_end: int | None = None
        # Operations of timers that expired during loading. They run when the shard has started.
        self._early_operations: list[Callable[[], CoordinatorResult[None]]] = []
        # Writes of this turn that are not appended yet.
        self._joint = JointWrites()
        # Whether a batch is being appended, and whether the high watermark has moved meanwhile.
        self._is_appending = False
        self._has_moved = False
        # Whether `_advance` is sending held responses.
        self._is_sending = False

    # Lifecycle.

    def load(self, log: Log, on_loaded: Callable[[], None]) -> None:
        """Replay the log into the shard, in slices. `on_loaded` is called if that succeeds."""
        assert self.state is ShardState.LOADING, f"partition={self.key} state={self.state}"
        self._loader = Loader(
            log,
            self.shard,
            self._dependencies.timer,
            self._dependencies.executor,
            partial(self._on_loading_done, on_loaded),
        )
        self._loader.start()

    def close(self) -> None:
        """Stop the shard. Held responses still complete when their records are committed."""
        self._on_event(ShardEvent.CLOSED)
        if self._loader is not None:
            self._loader.cancel()
            self._loader = None
        self._dependencies.log.high_watermark_listeners.remove(self.key)
        self._timers.close()
        respond_to(self._joint.take(), ErrorCode.NOT_COORDINATOR)
        self.shard.on_unloaded()

    def fail_held_responses(self, error: ErrorCode) -> None:
        """Fail the held responses. Their records may still be committed."""
        for held in self._held:
            held.finish(error)

    def _on_loading_done(self, on_loaded: Callable[[], None], succeeded: bool) -> None:
        assert self._loader is not None, f"partition={self.key} state={self.state}"
        self.skipped_records = self._loader.skips
        self._loader = None
        found = self._dependencies.log.partition(self.key)
        if not succeeded or isinstance(found, ErrorCode):
            self._on_event(ShardEvent.LOADING_FAILED)
            return
        self._on_event(ShardEvent.LOADED)
        self._written_end = self._loaded_end = found.log.log_end_offset
        on_loaded()
        self._dependencies.log.high_watermark_listeners.add(self.key, self._on_high_watermark)
        self._maybe_start()

    def _on_high_watermark(self) -> None:
        """Start the shard, or apply the committed records, even without a request."""
        if self._is_appending:
            # The records are not replayed yet. `_hold_appended` continues.
            self._has_moved = True
        elif self._maybe_start():
            self._advance()

    @property
    def is_loading(self) -> bool:
        """Whether requests are refused until the log is replayed and committed."""
        has_replayed = self.state is ShardState.ACTIVE
        return self.state is ShardState.LOADING or (has_replayed and self._loaded_end is not None)

    def _maybe_start(self) -> bool:
        """Return whether the shard has started. Start it once its records are committed."""
        if self._loaded_end is None:
            return True
        high_watermark = self._high_watermark()
        if high_watermark is None or high_watermark < self._loaded_end:
            return False
        self._loaded_end = None
        self._advance()
        self.shard.on_loaded()
        for number, operation in enumerate(self._early_operations):
            self._timers.schedule((_EARLY, number), 0, operation)
        self._early_operations.clear()
        return True

    def _on_event(self, event: ShardEvent) -> None:
        self.state = state_after(f"partition {self.key}", SHARD_STATES, self.state, event)

    # Requests.

    def read(self, operation: Callable[[S], R]) -> R | ErrorCode:
        """Return the result of `operation` on committed state, or an error."""
        error = self._availability()
        if error is not _NONE:
            return error
        self._advance()
        try:
            return operation(self.shard)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - only this request fails
            _log.exception(
                "Unexpected error while reading coordinator state: partition=%s", self._where()
            )
            return ErrorCode.UNKNOWN_SERVER_ERROR

    def confirm_leadership(self, on_done: Callable[[ErrorCode], None]) -> None:
        """Check that the state was not out of date when this method was called.

        `on_done` gets NONE, or the error for the client. It may run before this returns.
        """
        error = self._availability()
        if error is not _NONE:
            on_done(error)
            return

        def finish(error: ErrorCode) -> None:
            # The error makes clients look for the coordinator that the controller has elected.
            on_done(error if error is _NONE else ErrorCode.NOT_COORDINATOR)

        self._dependencies.log.confirm_leadership(self.key, _CONFIRMATION_MS_MAX, finish)

    def write(
        self,
        operation: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | None, ErrorCode], None],
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Run `operation`, append and replay its records, and respond after their commit.

        Args:
            operation: returns the response and the records.
            on_done: gets the response or the error.
            producer: writes the records in its transaction.
        """
        self._append_joint()
        result = self._run(operation, on_done)
        if result is not None:
            self._write(result, on_done, producer)

    def write_jointly(
        self,
        key: str,
        operation: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | None, ErrorCode], None],
    ) -> None:
        """Write like `write`, but append the records when the turn of the event loop ends.

        Args:
            key: the key whose state the operation reads and changes.
            operation: returns the response and the records.
            on_done: gets the response or the error.
        """
        if key in self._joint.writes:
            self._append_joint()
        result = self._run(operation, on_done)
        if result is None:
            return
        if not result.records:
            self._write(result, on_done)
            return
        if not self._joint.writes:
            self._dependencies.timer.call_soon(self._append_joint)
        if not self._joint.add(key, Write(result, on_done)):
            self._append_joint()

    def _run(
        self,
        operation: Callable[[S], CoordinatorResult[R]],
        on_done: Callable[[R | None, ErrorCode], None],
    ) -> CoordinatorResult[R] | None:
        """Return the result of an operation. If it cannot run or fails, respond; return None."""
        error = self._availability()
        if error is not _NONE:
            on_done(None, error)
            return None
        try:
            return operation(self.shard)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - only this request fails
            # As in Kafka's CoordinatorRuntime, only this request fails.
            _log.exception("Unexpected error in a coordinator request: partition=%s", self._where())
            on_done(None, ErrorCode.UNKNOWN_SERVER_ERROR)
            return None

    def _append_joint(self) -> None:
        """Append the pending writes as one batch, and those that their responses cause."""
        while self._joint.writes:
            writes = self._joint.take()
            records = records_of(writes)
            held = HeldResponse(partial(respond_to, writes))
            batch = self._batch(records, None)
            end_offset = None
            if batch is not None:
                end_offset = self._append_batch(batch, len(records), held)
            if end_offset is None:
                # The log has rejected the batch, perhaps because of one of the writes.
                for each in writes:
                    self._write(each.result, each.on_done)
                continue
            first_offset = end_offset - len(records)
            for each in writes:
                self._apply(each.result, first_offset, NO_PRODUCER_ID)
                first_offset += len(each.result.records)
            self._hold_appended(held, end_offset)

    def complete_transaction(
        self, ending: TransactionEnding, on_done: Callable[[ErrorCode], None]
    ) -> None:
        """Append the marker of a transaction, and apply it to the shard's records.

        Args:
            ending: the marker.
            on_done: called once, with NONE after the marker is committed, or with an error.
        """
        error = self._availability()
        if error is not _NONE:
            on_done(error)
            return
        held = HeldResponse(on_done)
        end_offset = self._append_batch(
            build_end_marker(ending, self._dependencies.clock.wall_ms()), 1, held, ending.origin
        )
        if end_offset is None:
            held.reject()
            return
        self.shard.replay_end_marker(end_offset - 1, ending.producer_id, ending.is_commit)
        self._hold_appended(held, end_offset)

    def _availability(self) -> ErrorCode:
        """Return whether the shard can handle a request now."""
        if self.state is _ACTIVE and self._loaded_end is None:
            return _NONE
        match self.state:
            case ShardState.LOADING:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            case ShardState.FAILED | ShardState.CLOSED:
                return ErrorCode.NOT_COORDINATOR
            case ShardState.ACTIVE:
                if self._maybe_start():
                    return _NONE
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # Timers.

    def _on_timer(self, operation: Callable[[], CoordinatorResult[None]]) -> None:
        """Run the operation of an expired timer, after the start of the shard."""
        if self.is_loading:
            # A deleted topic, for example, schedules an operation in each shard.
            self._early_operations.append(operation)
            return
        assert self.state is ShardState.ACTIVE, f"partition={self.key} state={self.state}"
        self._append_joint()
        self._write(operation(), _ignore)

    def _on_timer_failure(self, timer: Hashable) -> None:
        self.failed_timers += 1
        _log.exception("A coordinator timer failed: %s timer=%s", self._where(), timer)

    # Records and held responses.

    def _write(
        self,
        result: CoordinatorResult[R],
        on_done: Callable[[R | None, ErrorCode], None],
        producer: TransactionalProducer | None = None,
    ) -> None:
        if not (result.records or result.needs_leadership or result.on_appended or self._held):
            if self._shown_end != self._written_end:
                self._advance()
            if self._shown_end == self._written_end:
                # The response depends on committed records only.
                on_done(result.response, _NONE)
                return

        held = HeldResponse(Write(result, on_done).respond)
        if result.records:
            self._append(result, held, producer)
            return
        if result.needs_leadership:
            self.confirm_leadership(partial(self._on_confirmed, held))
        else:
            self._hold_unwritten(held)

    def _on_confirmed(self, held: HeldResponse, error: ErrorCode) -> None:
        if error is _NONE:
            self._hold_unwritten(held)
        else:
            held.finish(error)

    def _hold_unwritten(self, held: HeldResponse) -> None:
        """Hold a response without records. It may depend on uncommitted records."""
        self._hold(held, self._written_end)
        self._advance()
        if not held.is_done:
            # Only writes with records have a timeout in the produce purgatory.
            held.timeout = self._dependencies.wheel.add(
                self._dependencies.write_timeout_ms,
                partial(held.finish, ErrorCode.REQUEST_TIMED_OUT),
            )

    def _append(
        self,
        result: CoordinatorResult[R],
        held: HeldResponse,
        producer: TransactionalProducer | None,
    ) -> None:
        records = result.records
        batch = self._batch(records, producer)
        if batch is None:
            held.finish(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        end_offset = self._append_batch(batch, len(records), held)
        if end_offset is None:
            held.reject()
            return
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        self._apply(result, end_offset - len(records), producer_id)
        self._hold_appended(held, end_offset)

    def _apply(self, result: CoordinatorResult[Any], first_offset: int, producer_id: int) -> None:
        """Change the shard after the append of the result's records."""
        if result.apply is not None:
            result.apply()
        elif result.is_replayed:
            for offset, record in enumerate(result.records, first_offset):
                self.shard.replay_written(offset, record, producer_id)

    def _append_batch(
        self,
        batch: bytearray,
        count: int,
        held: HeldResponse,
        origin: AppendOrigin = _COORDINATOR,
    ) -> int | None:
        """Append a batch of `count` records.

        Returns:
            The end offset, or None if the log has rejected the batch. Then `held` has the error.
        """
        assert not self._is_appending, f"partition={self.key} written_end={self._written_end}"
        self._is_appending = True
        try:
            self._dependencies.log.append_records(
                self._dependencies.write_timeout_ms,
                _ACKS_ALL,
                {self.key: memoryview(batch)},
                origin,
                held.note_outcome,
            )
        finally:
            self._is_appending = False
        outcome = held.outcome
        if outcome is not None and outcome.base_offset < 0:
            return None
        end_offset = self._end_of(outcome)
        base_offset = end_offset - count
        assert base_offset >= self._written_end, (
            f"StateFollowsLog: partition={self.key} written_end={self._written_end} "
            f"appended_base_offset={base_offset}"
        )
        self._written_end = end_offset
        return end_offset

    def _hold_appended(self, held: HeldResponse, end_offset: int) -> None:
        """Hold the response until the commit of the batch that ends at `end_offset`."""
        self._hold(held, end_offset)
        has_moved, self._has_moved = self._has_moved, False
        if held.outcome is not None:
            self._on_outcome(held)
            return
        held.on_outcome = partial(self._on_outcome, held)
        if has_moved:
            self._advance()

    def _batch(
        self, records: list[CoordinatorRecord], producer: TransactionalProducer | None
    ) -> bytearray | None:
        """Return the batch of these records, or None if it cannot be built."""
        builder = BatchBuilder(compression=self._dependencies.compression)
        if producer is not None:
            builder = BatchBuilder(
                compression=self._dependencies.compression,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                # The log does not check sequences of coordinators. Kafka's begin with 0 as well.
                base_sequence=0,
                transactional=True,
            )
        try:
            builder.append_all(
                self._dependencies.clock.wall_ms(), [(each.key, each.value) for each in records]
            )
            return builder.build()
        except Exception:  # noqa: BLE001 - the writes fail, and leave no change pending
            _log.exception("Cannot build a batch of coordinator records: %s", self._where())
            return None

    def _end_of(self, outcome: ProduceResult | None) -> int:
        """Return the end offset of the batch that was just appended."""
        if outcome is not None:
            return outcome.last_offset + 1
        found = self._dependencies.log.partition(self.key)
        assert not isinstance(found, ErrorCode), f"partition={self.key} error={found}"
        return found.log.log_end_offset

    def _hold(self, held: HeldResponse, end_offset: int) -> None:
        assert not self._held or self._held[-1].end_offset <= end_offset, (
            f"StateFollowsLog: partition={self.key} held_end={self._held[-1].end_offset} "
            f"next_held_end={end_offset}"
        )
        held.end_offset = end_offset
        self._held.append(held)

    def _on_outcome(self, held: HeldResponse) -> None:
        """Complete the held response after the append.

        A failed append may still be committed later.
        """
        assert held.outcome is not None, f"partition={self.key} end_offset={held.end_offset}"
        if held.outcome.error is not _NONE:
            held.finish(held.outcome.error)
        self._advance()

    def _advance(self) -> None:
        """Make committed records visible to reads, and send the responses held for them.

        A response may start another write, which calls this again. The inner call sends nothing:
        otherwise many such responses would exceed the recursion limit.
        """
        high_watermark = self._high_watermark()
        if high_watermark is None:
            return
        # During an append, the log may have a committed batch that is not replayed yet.
        self._show(min(high_watermark, self._written_end))
        if self._is_sending:
            return
        held = self._held
        self._is_sending = True
        try:
            while held and (held[0].is_done or held[0].end_offset <= self._shown_end):
                held.popleft().finish(_NONE)
        finally:
            self._is_sending = False

    def _show(self, end_offset: int) -> None:
        """Make the records below `end_offset` visible to reads."""
        if end_offset != self._shown_end:
            self._shown_end = end_offset
            self.shard.commit(end_offset)

    def _high_watermark(self) -> int | None:
        """Return the high watermark, or None if this broker no longer leads the partition.

        Another leader may have replaced this leader's records below its high watermark.
        """
        found = self._dependencies.log.partition(self.key)
        if isinstance(found, ErrorCode) or not found.is_leader:
            return None
        return found.log.high_watermark

    def _where(self) -> str:
        return f"partition={self.key} leader_epoch={self.leader_epoch}"


def _ignore(_response: None, _error: ErrorCode) -> None:
    """Ignore the outcome: a timer has no client. `on_appended` handles errors."""
