"""One share partition on the leader of its partition (KIP-932, Kafka's SharePartition).

Connects the state machine with the share coordinator, the clock and the waiting fetches.
"""

from __future__ import annotations

import logging
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.read_share_group_state import (
    PartitionData,
    ReadShareGroupStateRequest,
    ReadStateData,
)
from barnabas.server.share.dead_letter_records import DeadLetter
from barnabas.server.share.records.acknowledgement import Refusal
from barnabas.server.share.records.in_flight_records import StoredBatch
from barnabas.server.share.records.record_states import RecordState
from barnabas.server.share.records.share_records import ShareRecords
from barnabas.server.share.share_meters import PartitionMeters
from barnabas.server.share.state_writer import StateWriter, WrittenOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.metrics.measurements import Histogram
    from barnabas.protocol.messages.read_share_group_state import (
        PartitionResult,
        ReadShareGroupStateResponse,
    )
    from barnabas.runtime.clock import Clock
    from barnabas.server.share.group_settings import ShareGroupSettings, ShareLimits
    from barnabas.server.share.persister import Persister
    from barnabas.server.share.records.acknowledgement import AcknowledgedBatch
    from barnabas.server.share.records.acquisition import AcquiredRange
    from barnabas.server.share.records.record_states import RecordRun, StateChange
    from barnabas.server.share.records.share_records import FetchedRecords, MemberRequest
    from barnabas.server.share.state_writer import SharePartitionKey
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

_log = logging.getLogger(__name__)

# Start offset of a state that was initialized without an offset.
UNKNOWN_START_OFFSET = -1

_NONE = ErrorCode.NONE
# Maximum of the 32-bit field of a write. Stored batches of a hostile writer may have more records.
_COMPLETE_COUNT_MAX = (1 << 31) - 1
# Errors of a share coordinator, as members see them.
_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


def member_error(error: ErrorCode) -> ErrorCode:
    """Return the error that a member gets for an error of the share coordinator."""
    return _NONE if error is _NONE else _ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


class Status(Enum):
    """Whether a share partition can be used."""

    EMPTY = "empty"
    # The state is being read.
    LOADING = "loading"
    ACTIVE = "active"
    # The leader has changed, or the share coordinator has refused the state. Terminal.
    FENCED = "fenced"


class SharePartitionDependencies(msgspec.Struct, frozen=True):
    """Dependencies of all share partitions of a broker."""

    persister: Persister
    settings: ShareGroupSettings
    clock: Clock
    wheel: TimingWheel
    # Finds the first offset of a new share partition and passes it, or an error, to the callback.
    find_start: Callable[[SharePartitionKey, int, Callable[[int | ErrorCode], None]], None]
    # Checks the fetches that wait for a share partition.
    wake: Callable[[SharePartitionKey], None]
    # Called with a share partition whose share coordinator has refused a write.
    on_refused: Callable[[SharePartition, ErrorCode], None]
    # Writes to the dead-letter topic of a group, and calls back at the end, even after a failure.
    write_dead_letter: Callable[[DeadLetter, Callable[[], None]], None]
    # Times until the state of a share partition is loaded, ms.
    load_ms: Histogram


class SharePartition:
    """The records that a group has in flight from one partition. One turn of the loop reads the log
    and acquires the records, so concurrent fetches need no lock.
    """

    __slots__ = (
        "_dead_letters",
        "_dependencies",
        "_loading_since_ms",
        "_meters",
        "_on_loaded",
        "_state_epoch",
        "_timer",
        "_timer_ms",
        "_writer",
        "fencing_error",
        "key",
        "leader_epoch",
        "records",
        "status",
        "timed_out_count",
    )

    def __init__(
        self, key: SharePartitionKey, leader_epoch: int, dependencies: SharePartitionDependencies
    ) -> None:
        self.key = key
        # Leader epoch of the partition when this object was created; fences other leaders.
        self.leader_epoch = leader_epoch
        self._dependencies = dependencies
        self.status = Status.EMPTY
        # The error for members when the status is FENCED: the reason why the state cannot be
        # loaded.
        self.fencing_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Generation of the state, from the share coordinator.
        self._state_epoch = 0
        # Set while the state is ACTIVE or FENCED afterwards.
        self.records: ShareRecords | None = None
        self._writer = StateWriter(key, dependencies.persister, self._offsets)
        self._on_loaded: list[Callable[[ErrorCode], None]] = []
        # The timer of the next timeout of a lock, and its time.
        self._timer: WheelEntry | None = None
        self._timer_ms = 0.0
        # Number of records whose acquisition lock has timed out. Only increases.
        self.timed_out_count = 0
        # Number of dead letters that are being written.
        self._dead_letters = 0
        # When the status became LOADING (monotonic, ms).
        self._loading_since_ms = 0.0
        # None before the first read.
        self._meters: PartitionMeters | None = None

    @property
    def meters(self) -> PartitionMeters:
        """Distributions of this share partition."""
        if self._meters is None:
            self._meters = PartitionMeters(self._dependencies.clock.monotonic_ms())
        return self._meters

    # Loading.

    def load(self, on_loaded: Callable[[ErrorCode], None]) -> None:
        """Read the state from the share coordinator unless that was done.

        Args:
            on_loaded: called with the result, perhaps before this returns.
        """
        match self.status:
            case Status.ACTIVE:
                on_loaded(_NONE)
                return
            case Status.FENCED:
                on_loaded(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                return
            case Status.LOADING:
                self._on_loaded.append(on_loaded)
                return
            case Status.EMPTY:
                self._on_loaded.append(on_loaded)
        self.status = Status.LOADING
        self._loading_since_ms = self._dependencies.clock.monotonic_ms()
        where = self.key.where
        data = PartitionData(partition=where.partition, leader_epoch=self.leader_epoch)
        topic = ReadStateData(topic_id=where.topic_id, partitions=[data])
        self._dependencies.persister.read(
            ReadShareGroupStateRequest(group_id=self.key.group_id, topics=[topic]), self._on_state
        )

    def _on_state(self, response: ReadShareGroupStateResponse) -> None:
        if self.status is not Status.LOADING:
            return
        state = response.results[0].partitions[0]
        error = ErrorCode.of(state.error_code)
        if error is not _NONE:
            _log.warning("Share partition cannot be loaded: key=%s error=%s", self.key, error.name)
            self._end_loading(member_error(error))
        elif state.start_offset == UNKNOWN_START_OFFSET:
            self._dependencies.find_start(
                self.key, self.leader_epoch, partial(self._on_start, state)
            )
        else:
            self._on_start(state, state.start_offset)

    def _on_start(self, state: PartitionResult, start: int | ErrorCode) -> None:
        if self.status is not Status.LOADING:
            return
        if isinstance(start, ErrorCode):
            self._end_loading(start)
            return
        stored = [
            StoredBatch(
                each.first_offset, each.last_offset, each.delivery_state, each.delivery_count
            )
            for each in state.state_batches
        ]
        try:
            self.records = ShareRecords(start, stored)
        except ValueError as error:
            _log.error("Share partition cannot be loaded: key=%s error=%s", self.key, error)
            self._end_loading(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._state_epoch = state.state_epoch
        self.status = Status.ACTIVE
        now_ms = self._dependencies.clock.monotonic_ms()
        self._dependencies.load_ms.update(now_ms - self._loading_since_ms)
        # The stored state has no reason: records below the limit of deliveries were rejected.
        limit = self._limits().delivery_count_limit
        resumed = self.records.in_flight.archiving()
        for run in resumed:
            run.is_rejected = run.delivery_count < limit
        self._end_loading(_NONE)
        self._write_dead_letters(resumed)

    def _end_loading(self, error: ErrorCode) -> None:
        if error is not _NONE:
            self.status = Status.FENCED
            self.fencing_error = error
        waiting, self._on_loaded = self._on_loaded, []
        for on_loaded in waiting:
            on_loaded(error)

    def fence(self) -> None:
        """Stop: the leader has changed, or the topic or the group is gone.

        Requests whose states are being written still get the result of the write.
        """
        was_loading = self.status is Status.LOADING
        self.status = Status.FENCED
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if was_loading:
            self._end_loading(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def is_active(self) -> bool:
        """Whether records can be acquired and acknowledged."""
        return self.status is Status.ACTIVE

    @property
    def is_fenced(self) -> bool:
        """Whether another object or another broker has the current state."""
        return self.status is Status.FENCED

    @property
    def is_archiving(self) -> bool:
        """Whether records wait for their dead-letter write."""
        return self._dead_letters > 0

    @property
    def is_writing(self) -> bool:
        """Whether states are being written. Then a new object for the same partition could read
        older states, and a delayed write could replace what that object writes.
        """
        return self._writer.is_busy

    # Operations of members.

    def can_acquire(self) -> bool:
        """Whether a fetch may acquire records."""
        if self.records is None or not self.is_active:
            return False
        return self.records.in_flight.can_acquire(self._limits())

    def last_acquirable(self, fetch_offset: int, records_max: int) -> int:
        """Return an offset that no acquisition of `records_max` records from a fetch exceeds."""
        end_offset = self._active_records().in_flight.end_offset
        # Records up to the end offset may be acquired already.
        return max(fetch_offset, end_offset + 1) + records_max - 1

    def acquire(
        self, request: MemberRequest, records_max: int, fetched: FetchedRecords
    ) -> list[AcquiredRange]:
        """Acquire fetched records for a member; see `ShareRecords.acquire`."""
        records = self._active_records()
        acquired = records.acquire(
            request, records_max, fetched, self._limits(), self._dependencies.clock.monotonic_ms()
        )
        self.meters.count_acquired(acquired)
        self._arm()
        return acquired

    def acknowledge(
        self,
        member_id: str,
        batches: Sequence[AcknowledgedBatch],
        on_done: Callable[[ErrorCode, str | None], None],
    ) -> None:
        """Acknowledge records, all or none.

        Args:
            member_id: the member that has acquired them.
            batches: the acknowledged offsets.
            on_done: called with error and message when the states are written, perhaps before this
                returns.
        """
        records = self.records
        if records is None or self.status is not Status.ACTIVE:
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
            return
        limits, now_ms = self._limits(), self._dependencies.clock.monotonic_ms()
        result = records.acknowledge(member_id, batches, limits, now_ms)
        self._arm()
        if isinstance(result, Refusal):
            on_done(result.error, result.message)
            return
        self._write(result, on_done)

    def release(
        self, member_id: str, on_done: Callable[[ErrorCode, str | None], None] | None = None
    ) -> None:
        """Release the records of a member whose session has ended."""
        if self.records is None or not self.is_active:
            if on_done is not None:
                on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
            return
        self._write(self.records.release_member(member_id, self._limits()), on_done)

    def move_log_start(self, log_start_offset: int) -> None:
        """Move the start offset because the log has lost records."""
        self._active_records().in_flight.move_log_start(log_start_offset)

    def _active_records(self) -> ShareRecords:
        assert self.records is not None, f"{self.key} is not loaded"
        return self.records

    # Writes.

    def _write(
        self, change: StateChange, on_done: Callable[[ErrorCode, str | None], None] | None
    ) -> None:
        if not change:
            if on_done is not None:
                on_done(_NONE, None)
            return
        self._writer.write(list(change.states()), partial(self._on_written, change, on_done))

    def _on_written(
        self,
        change: StateChange,
        on_done: Callable[[ErrorCode, str | None], None] | None,
        written: ErrorCode,
    ) -> None:
        error = member_error(written)
        records, dependencies = self._active_records(), self._dependencies
        now_ms = dependencies.clock.monotonic_ms()
        records.end_change(change, error is _NONE, now_ms, self._limits())
        if error is not _NONE:
            _log.warning("States cannot be written: key=%s error=%s", self.key, written.name)
            dependencies.on_refused(self, error)
        if on_done is not None:
            on_done(error, None)
        dependencies.wake(self.key)
        if error is _NONE:
            self._write_dead_letters(change.runs)

    # Dead letters (KIP-1191).

    def _write_dead_letters(self, runs: Iterable[RecordRun]) -> None:
        """Write records to the dead-letter topic whose state ARCHIVING is stored."""
        key, letters = self.key, list[DeadLetter]()
        for run in sorted(runs, key=lambda run: run.first):
            if run.state is not RecordState.ARCHIVING or self.status is not Status.ACTIVE:
                continue
            reason = (run.delivery_count, run.is_rejected)
            last = letters[-1] if letters else None
            if (
                last is not None
                and last.last + 1 == run.first
                and (last.delivery_count, last.is_rejected) == reason
            ):
                letters[-1] = DeadLetter(key.group_id, key.where, last.first, run.last, *reason)
            else:
                letters.append(DeadLetter(key.group_id, key.where, run.first, run.last, *reason))
        self._dead_letters += len(letters)
        for letter in letters:
            self._dependencies.write_dead_letter(letter, partial(self._archive, letter))

    def _archive(self, letter: DeadLetter) -> None:
        """Archive records whose dead-letter write has ended. The next leader repeats the write."""
        self._dead_letters -= 1
        if self.status is not Status.ACTIVE:
            return
        runs = self._active_records().in_flight.end_archiving(letter.first, letter.last)
        states = [(run.first, run.last, run.state, run.delivery_count) for run in runs]
        if states:
            self._writer.write(states, self._on_archived)

    def _on_archived(self, written: ErrorCode) -> None:
        """The records stay archived whether that was written or not."""
        if self._active_records().in_flight.advance():
            self._dependencies.wake(self.key)
        error = member_error(written)
        if error is not _NONE:
            _log.warning("Archived records not stored: key=%s error=%s", self.key, written.name)
            self._dependencies.on_refused(self, error)

    def _offsets(self) -> WrittenOffsets:
        in_flight = self._active_records().in_flight
        return WrittenOffsets(
            self._state_epoch,
            self.leader_epoch,
            in_flight.start_offset,
            min(in_flight.delivery_complete_count, _COMPLETE_COUNT_MAX),
        )

    # Timeouts.

    def _arm(self) -> None:
        """Set the timer to the next timeout of a lock."""
        next_ms = self._active_records().next_timeout_ms
        if next_ms is None or self.status is not Status.ACTIVE:
            return
        if self._timer is not None:
            if self._timer_ms <= next_ms:
                return
            self._timer.cancel()
        self._timer_ms = next_ms
        delay_ms = max(0.0, next_ms - self._dependencies.clock.monotonic_ms())
        self._timer = self._dependencies.wheel.add(delay_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self.status is not Status.ACTIVE:
            return
        records, now_ms = self._active_records(), self._dependencies.clock.monotonic_ms()
        expired = records.expire(now_ms, self._limits())
        self._arm()
        if not expired:
            return
        self.timed_out_count += sum(map(len, expired))
        states = [(run.first, run.last, run.state, run.delivery_count) for run in expired]
        self._writer.write(states, partial(self._on_timeouts_written, expired))
        self._dependencies.wake(self.key)

    def _on_timeouts_written(self, expired: list[RecordRun], written: ErrorCode) -> None:
        """The timeouts hold whether they were written or not."""
        error = member_error(written)
        if self._active_records().in_flight.advance():
            self._dependencies.wake(self.key)
        if error is not _NONE:
            _log.warning("Timeouts cannot be written: key=%s error=%s", self.key, written.name)
            self._dependencies.on_refused(self, error)
        self._write_dead_letters(expired)

    def _limits(self) -> ShareLimits:
        return self._dependencies.settings.limits(self.key.group_id)
