"""The share partitions of one partition of `__share_group_state` (Kafka's ShareCoordinatorShard).

Initialization writes a snapshot, and a write appends an update. After a number of updates, a write
appends a snapshot instead. Requests see the state of all earlier requests, and their responses wait
for the commit of the records on which they depend.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.shard import Shard
from barnabas.coordinator.share.share_partition_state import (
    NO_DELIVERY_COMPLETE_COUNT,
    NO_START_OFFSET,
    InvalidBatchError,
    SharePartitionState,
    SharePartitionUpdate,
    StateChange,
    StateOutcome,
    combine,
    is_ordered,
    refused,
)
from barnabas.coordinator.share.share_record import (
    SNAPSHOT_TYPE,
    read_key,
    read_snapshot,
    read_update,
    snapshot_record,
    tombstone_record,
    update_record,
)
from barnabas.metrics.measurements import SampledValues
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.record.batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.share.share_partition_state import SharePartitionKey
    from barnabas.runtime.clock import Clock

    Result = CoordinatorResult[StateOutcome]
    # Returns whether the topic with this id has the partition.
    HasPartition = Callable[[bytes, int], bool]


class ShareMetrics:
    """Measurements of all shards together, since the start."""

    __slots__ = ("write_times", "writes", "written")

    def __init__(self) -> None:
        # Number of share partitions that WriteShareGroupState was applied to, or whose leader epoch
        # a read has changed; and each of them as a 1, for the rate.
        self.writes = 0
        self.written = SampledValues()
        # Durations of WriteShareGroupState until the commit, in ms.
        self.write_times = SampledValues()

    def note_write(self, now_ms: float) -> None:
        """Count a write of one share partition."""
        self.writes += 1
        self.written.record(1, now_ms)


class RedundantOffsets:
    """The offset of the last snapshot of each share partition of one state partition.

    Later snapshots replace earlier records, so the log below the oldest last snapshot is not
    needed. Kafka: ShareCoordinatorOffsetsManager.
    """

    __slots__ = ("_snapshots", "end_offset")

    def __init__(self) -> None:
        # Offset of the last snapshot by share partition. Ascending, since `note` appends.
        self._snapshots: OrderedDict[SharePartitionKey, int] = OrderedDict()
        # Records below this offset are redundant. Moved by `note`; never decreases.
        self.end_offset = 0

    def note(self, key: SharePartitionKey, offset: int, *, is_tombstone: bool) -> None:
        """Note a snapshot or tombstone. Offsets increase from call to call."""
        self._snapshots[key] = offset
        self._snapshots.move_to_end(key)
        oldest = next(iter(self._snapshots.values()))
        assert oldest >= self.end_offset, f"oldest={oldest} end_offset={self.end_offset}"
        self.end_offset = oldest
        if is_tombstone:
            del self._snapshots[key]


# Maximum number of state batches of a share partition, and of one write to it. A share partition
# has at most group.share.partition.max.record.locks (10,000) records in flight, so it cannot have
# more in regular operation. Merging that many takes some ms.
STATE_BATCHES_MAX = 12_000
# Maximum number of state batches of one write if they overlap, or are not in order. Leaders send
# them in order.
_UNORDERED_MAX = 4_000
# Tombstones in one batch.
_TOMBSTONES_MAX = 500

_NEGATIVE_PARTITION = "the partition is negative"
_NEGATIVE_LEADER_EPOCH = "the leader epoch is negative"
_NEGATIVE_STATE_EPOCH = "the state epoch is negative"
_UNINITIALIZED = "the share partition is not initialized"
_TOO_MANY_BATCHES = f"the state would have more than {STATE_BATCHES_MAX} batches"


class SharePartition:
    """A share partition as its records describe it. Only replay changes it."""

    __slots__ = ("leader_epoch", "state", "state_epoch", "updates")

    def __init__(self, state: SharePartitionState) -> None:
        self.state = state
        # The highest leader epoch and state epoch of all records. None without any record that has
        # one. Never decrease.
        self.leader_epoch: int | None = None
        self.state_epoch: int | None = None
        # Number of updates since the last snapshot that they caused.
        self.updates = 0

    def note_epochs(self, leader_epoch: int, state_epoch: int | None) -> None:
        """Raise the highest epochs."""
        if self.leader_epoch is None or leader_epoch > self.leader_epoch:
            self.leader_epoch = leader_epoch
        if state_epoch is not None and (self.state_epoch is None or state_epoch > self.state_epoch):
            self.state_epoch = state_epoch


class ShareStateShard(Shard):
    """The state of the share partitions of one state partition."""

    __slots__ = (
        "_clock",
        "_has_partition",
        "_metrics",
        "_on_loaded",
        "_prepared",
        "_snapshot_interval",
        "partitions",
        "redundant",
    )

    def __init__(
        self,
        snapshot_interval: int,
        clock: Clock,
        has_partition: HasPartition,
        metrics: ShareMetrics,
        on_loaded: Callable[[ShareStateShard], None] = lambda _: None,
    ) -> None:
        """Create the empty shard.

        Args:
            snapshot_interval: number of updates after which a write appends a snapshot.
            clock: the wall clock of timestamps.
            has_partition: whether the topic with an id has a partition.
            metrics: counts writes.
            on_loaded: called with the shard after the log is loaded.
        """
        self._on_loaded = on_loaded
        self._metrics = metrics
        self._snapshot_interval = snapshot_interval
        self._clock = clock
        self._has_partition = has_partition
        # Known share partitions. `replay` adds and removes them.
        self.partitions: dict[SharePartitionKey, SharePartition] = {}
        # The records that later snapshots replace. `replay` changes them.
        self.redundant = RedundantOffsets()
        # Value of the last record that a request has made, and the state after it. Unused if the
        # record is not appended.
        self._prepared: tuple[bytes, SharePartitionState] | None = None

    # Requests.

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Result:
        """Handle InitializeShareGroupState: replace the state, which has no batches then."""
        if key.partition < 0:
            return _invalid(_NEGATIVE_PARTITION)
        if state_epoch < 0:
            return _invalid(_NEGATIVE_STATE_EPOCH)
        known = self.partitions.get(key)
        if known is not None and _is_fenced(state_epoch, known.state_epoch):
            return _refuse(ErrorCode.FENCED_STATE_EPOCH)
        if not self._exists(key):
            return _refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        now_ms = self._clock.wall_ms()
        has_start = start_offset != NO_START_OFFSET
        state = SharePartitionState(
            snapshot_epoch=0 if known is None else known.state.next_snapshot_epoch,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            delivery_complete_count=0 if has_start else NO_DELIVERY_COMPLETE_COUNT,
            state_batches=[],
            create_timestamp_ms=now_ms,
            write_timestamp_ms=now_ms,
        )
        return CoordinatorResult(StateOutcome(), [snapshot_record(key, state)])

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Result:
        """Handle ReadShareGroupState: return the state, and store a newer leader epoch."""
        known = self._check_leader(key, leader_epoch)
        if isinstance(known, StateOutcome):
            return CoordinatorResult(known)
        if not self._exists(key):
            return _refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = known.state
        outcome = StateOutcome(state=state)
        if leader_epoch == known.leader_epoch:
            return CoordinatorResult(outcome)
        self._metrics.note_write(self._clock.monotonic_ms())
        change = StateChange(
            state_epoch=state.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
        return CoordinatorResult(outcome, [self._record(key, known, change, leader_epoch)])

    def write(self, key: SharePartitionKey, change: StateChange) -> Result:
        """Handle WriteShareGroupState. The leader epoch is checked, but not stored, as in Kafka.

        Raises:
            InvalidBatchError: a state batch ends before it begins.
        """
        self._metrics.note_write(self._clock.monotonic_ms())
        if key.partition >= 0 and change.leader_epoch >= 0 > change.state_epoch:
            return _invalid(_NEGATIVE_STATE_EPOCH)
        known = self._check_leader(key, change.leader_epoch)
        if isinstance(known, StateOutcome):
            return CoordinatorResult(known)
        if _is_fenced(change.state_epoch, known.state_epoch):
            return _refuse(ErrorCode.FENCED_STATE_EPOCH)
        if not self._exists(key):
            return _refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if _is_too_large(change):
            return _refuse(ErrorCode.UNKNOWN_SERVER_ERROR, _TOO_MANY_BATCHES)
        record = self._record(key, known, change, known.state.leader_epoch)
        assert self._prepared is not None, f"key={key}"
        if len(self._prepared[1].state_batches) > STATE_BATCHES_MAX:
            return _refuse(ErrorCode.UNKNOWN_SERVER_ERROR, _TOO_MANY_BATCHES)
        return CoordinatorResult(StateOutcome(), [record])

    def delete(self, key: SharePartitionKey) -> Result:
        """Handle DeleteShareGroupState. Missing state is no error."""
        if key.partition < 0:
            return _invalid(_NEGATIVE_PARTITION)
        if not self._exists(key):
            return _refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        records = [tombstone_record(key)] if key in self.partitions else []
        return CoordinatorResult(StateOutcome(), records)

    def read_summary(self, key: SharePartitionKey) -> Result:
        """Handle ReadShareGroupStateSummary. Missing state is no error."""
        if key.partition < 0:
            return _invalid(_NEGATIVE_PARTITION)
        if not self._exists(key):
            return _refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        known = self.partitions.get(key)
        return CoordinatorResult(StateOutcome(state=None if known is None else known.state))

    def _check_leader(
        self, key: SharePartitionKey, leader_epoch: int
    ) -> SharePartition | StateOutcome:
        """Return the share partition, unless the request of its leader is refused."""
        if key.partition < 0:
            return refused(ErrorCode.INVALID_REQUEST, _NEGATIVE_PARTITION)
        if leader_epoch < 0:
            return refused(ErrorCode.INVALID_REQUEST, _NEGATIVE_LEADER_EPOCH)
        known = self.partitions.get(key)
        if known is None:
            return refused(ErrorCode.INVALID_REQUEST, _UNINITIALIZED)
        if _is_fenced(leader_epoch, known.leader_epoch):
            return refused(ErrorCode.FENCED_LEADER_EPOCH)
        return known

    def _exists(self, key: SharePartitionKey) -> bool:
        return self._has_partition(key.topic_id, key.partition)

    def _record(
        self, key: SharePartitionKey, known: SharePartition, change: StateChange, leader_epoch: int
    ) -> CoordinatorRecord:
        """Return the snapshot or update that a change appends. Prepare the state after it."""
        state = known.state
        start_offset = max(change.start_offset, state.start_offset)
        complete = change.delivery_complete_count
        if change.start_offset == state.start_offset:
            complete = max(complete, state.delivery_complete_count)
        elif change.start_offset < state.start_offset:
            complete = state.delivery_complete_count
        if known.updates >= self._snapshot_interval:
            now_ms = self._clock.wall_ms()
            snapshot = SharePartitionState(
                snapshot_epoch=state.next_snapshot_epoch,
                state_epoch=state.state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=complete,
                state_batches=combine(state.state_batches, change.state_batches, start_offset),
                create_timestamp_ms=now_ms,
                write_timestamp_ms=now_ms,
            )
            return self._prepare(snapshot_record(key, snapshot), snapshot)
        update = SharePartitionUpdate(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete,
            state_batches=combine([], change.state_batches, start_offset),
        )
        return self._prepare(update_record(key, update), state.updated(update))

    def _prepare(self, record: CoordinatorRecord, state: SharePartitionState) -> CoordinatorRecord:
        """Remember the state after a record, so that its replay need not decode and merge it."""
        assert record.value is not None, "the record of a state has a value"
        self._prepared = record.value, state
        return record

    # Changes without a request.

    def forget_topics(self, topic_ids: Collection[bytes]) -> CoordinatorResult[bool]:
        """Delete the state of some share partitions of deleted topics.

        The response is whether there may be more of them.
        """
        found: list[CoordinatorRecord] = []
        for key in self.partitions:
            if key.topic_id in topic_ids:
                found.append(tombstone_record(key))
                if len(found) == _TOMBSTONES_MAX:
                    return CoordinatorResult(True, found)
        return CoordinatorResult(False, found)

    @property
    def has_cold_partitions(self) -> bool:
        """Whether a cold partition may need a snapshot, as Kafka decides it.

        False if the last snapshot of every share partition was written by `snapshot_cold`.
        """
        states = (each.state for each in self.partitions.values())
        return any(each.create_timestamp_ms == each.write_timestamp_ms for each in states)

    def snapshot_cold(
        self, keys: Iterable[SharePartitionKey], interval_ms: int
    ) -> list[CoordinatorRecord]:
        """Return new snapshots of share partitions whose last snapshot is older than `interval_ms`.

        Then the records before the old snapshots can be deleted.
        """
        now_ms = self._clock.wall_ms()
        records = []
        for key in keys:
            known = self.partitions.get(key)
            if known is None or now_ms - known.state.write_timestamp_ms < interval_ms:
                continue
            state = msgspec.structs.replace(
                known.state,
                snapshot_epoch=known.state.next_snapshot_epoch,
                write_timestamp_ms=now_ms,
            )
            records.append(snapshot_record(key, state))
        return records

    # The log.

    def replay(
        self, offset: int, key: bytes, value: bytes | None, _producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply a record, see `Shard.replay`."""
        record_type, found = read_key(key)
        if found is None:
            return
        if record_type != SNAPSHOT_TYPE:
            self._replay_update(found, value)
        elif value is None:
            self.partitions.pop(found, None)
            self.redundant.note(found, offset, is_tombstone=True)
        else:
            state = self._take_prepared(value)
            self._replay_snapshot(found, read_snapshot(value) if state is None else state)
            self.redundant.note(found, offset, is_tombstone=False)

    def _replay_snapshot(self, key: SharePartitionKey, state: SharePartitionState) -> None:
        known = self.partitions.get(key)
        if known is None:
            known = self.partitions[key] = SharePartition(state)
        known.state = state
        known.note_epochs(state.leader_epoch, state.state_epoch)
        if known.updates >= self._snapshot_interval:
            known.updates = 0

    def _take_prepared(self, value: bytes) -> SharePartitionState | None:
        """Return the prepared state after the record with this value; None for other records."""
        prepared, self._prepared = self._prepared, None
        return None if prepared is None or prepared[0] is not value else prepared[1]

    def _replay_update(self, key: SharePartitionKey, value: bytes | None) -> None:
        if value is None:
            raise ProtocolError("an update has no value")
        known = self.partitions.get(key)
        prepared = self._take_prepared(value)
        if known is not None and prepared is not None:
            known.state = prepared
            known.note_epochs(prepared.leader_epoch, None)
            known.updates += 1
            return
        update = read_update(value)
        if known is None:
            # The snapshot before it is damaged or deleted.
            known = self.partitions[key] = SharePartition(update.as_state())
        else:
            try:
                known.state = known.state.updated(update)
            except InvalidBatchError as error:
                raise ProtocolError(str(error)) from None
        known.note_epochs(update.leader_epoch, None)
        known.updates += 1

    def replay_end_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """Ignore a marker: no transaction has records of share partitions."""

    def commit(self, end_offset: int) -> None:
        """Do nothing: all requests wait for the commit of the records that they have seen."""

    def on_loaded(self) -> None:
        """Start the periodic tasks."""
        self._on_loaded(self)

    def on_unloaded(self) -> None:
        """Do nothing: the runtime fails the requests and ends the timers."""


def _is_fenced(epoch: int, known: int | None) -> bool:
    return known is not None and epoch < known


def _is_too_large(change: StateChange) -> bool:
    count = len(change.state_batches)
    if count > STATE_BATCHES_MAX:
        return True
    return count > _UNORDERED_MAX and not is_ordered(change.state_batches)


def _invalid(message: str) -> Result:
    return _refuse(ErrorCode.INVALID_REQUEST, message)


def _refuse(error: ErrorCode, message: str | None = None) -> Result:
    return CoordinatorResult(refused(error, message))
