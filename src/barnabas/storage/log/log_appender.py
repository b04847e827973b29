"""Appends to a log, as its leader or as a follower; offsets are assigned here only.

An append has three steps. It validates the batches and plans their offsets, positions and producer
states, without changing anything but the batches. It writes them with one system call. It applies
the plan. The base offset and the leader epoch are patched in place; both lie outside the CRC.

A joint append does this with the batches of several requests, which gives each its own result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import LOG_OVERHEAD, NO_PRODUCER_ID, set_offset_and_epoch
from barnabas.record.record import UnsupportedMagicError
from barnabas.storage.config import LONG_MAX
from barnabas.storage.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaStorageError,
    RecordBatchTooLargeError,
    StorageError,
    UnexpectedAppendOffsetError,
    UnsupportedForMessageFormatError,
)
from barnabas.storage.files.leader_epoch_cache import EpochEntry
from barnabas.storage.log.batch_inspection import InspectedRecords
from barnabas.storage.log.validator import ordinary_header, read_followed_batches, validate
from barnabas.storage.producers.producer_entry import ProducerChange, read_end_marker
from barnabas.storage.results import AppendInfo, AppendOrigin
from barnabas.storage.segment.batch_scan import PlacedBatch
from barnabas.storage.segment.segment_indexes import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.record.batch import BatchHeader
    from barnabas.storage.config import LogConfig
    from barnabas.storage.files.leader_epoch_cache import LeaderEpochCache
    from barnabas.storage.log.batch_inspection import Batches, JoinedBatch, LeaderRecords
    from barnabas.storage.log.local_log import LocalLog
    from barnabas.storage.log.log_offsets import LogOffsets
    from barnabas.storage.log.roll_and_retention import LogRoller
    from barnabas.storage.log_dependencies import DiskGuard
    from barnabas.storage.producers.producer_entry import ProducerEntry, RememberedBatch
    from barnabas.storage.producers.producer_state import ProducerState
    from barnabas.storage.segment.segment import Segment


_RAFT = AppendOrigin.RAFT
_CLIENT = AppendOrigin.CLIENT
# The largest leader epoch, that is, no limit.
_EPOCH_MAX = 0x7FFF_FFFF


def assign(
    records: memoryview,
    found: Batches,
    leader_epoch: int,
    info: AppendInfo,
    origin: AppendOrigin,
    producers: ProducerState,
) -> tuple[list[PlacedBatch], list[ProducerChange]]:
    """Write offset and epoch into each batch in place, and stage the producer states.

    Args:
        info: has the first offset; receives offsets, count and timestamp of the append.

    Returns:
        The places of the batches, and the producer changes to commit after the write.

    Raises:
        InvalidRecordError: a RAFT batch does not have the next offset.
        StorageError: ProducerState rejects a batch.
    """
    placed: list[PlacedBatch] = []
    staging: _Staging | None = None
    next_offset = info.first_offset
    for position, header in found:
        if header.producer_id != NO_PRODUCER_ID:
            staging = staging or _Staging(producers, origin)
            staging.add(records[position : position + header.size], header, next_offset)
        if origin is _RAFT and header.base_offset != next_offset:
            raise InvalidRecordError(
                f"the batch has offset {header.base_offset}, but the log ends at {next_offset}"
            )
        set_offset_and_epoch(records, position, next_offset, leader_epoch)
        placed.append(place(info, position, header, next_offset))
        next_offset = info.last_offset + 1
    info.last_leader_epoch = leader_epoch
    return placed, [] if staging is None else staging.changes


def stage_followed(
    records: memoryview | bytes, found: Batches, producers: ProducerState
) -> list[ProducerChange]:
    """Stage the producer states after the leader's batches, which keep their offsets.

    Raises:
        CorruptRecordError: a transaction marker cannot be read.
        InvalidTxnStateError: a batch does not belong to its producer's open transaction.
    """
    staging = _Staging(producers, AppendOrigin.REPLICATION)
    for position, header in found:
        if header.producer_id > NO_PRODUCER_ID:
            batch = records[position : position + header.size]
            staging.add(batch, header, header.base_offset)
    return staging.changes


class JointPlan:
    """The plan of one write, which appends the batches of several requests.

    Each batch is accepted or rejected as if it were appended alone.
    """

    __slots__ = ("_staging", "buffers", "info", "outcomes", "placed")

    def __init__(self, info: AppendInfo, leader_epoch: int, producers: ProducerState) -> None:
        # The write as a whole. `add` raises its end.
        self.info = info
        info.last_leader_epoch = leader_epoch
        self._staging = _Staging(producers, AppendOrigin.CLIENT)
        # The accepted batches and their places.
        self.buffers: list[memoryview] = []
        self.placed: list[PlacedBatch] = []
        # The result of each batch if the write succeeds.
        self.outcomes: list[AppendInfo | StorageError] = []

    @property
    def changes(self) -> list[ProducerChange]:
        """The producer changes to commit after the write."""
        return self._staging.changes

    def add(self, records: memoryview, header: BatchHeader) -> None:
        """Write offset and epoch into a client's batch in place, and stage its producer state."""
        whole = self.info
        first_offset = whole.last_offset + 1
        if header.producer_id != NO_PRODUCER_ID and not self._stage(records, header, first_offset):
            return
        epoch, count, start = whole.last_leader_epoch, header.record_count, whole.log_start_offset
        set_offset_and_epoch(records, 0, first_offset, epoch)
        placed = place(whole, whole.size, header, first_offset)
        size, last_offset, max_timestamp = placed.size, placed.last_offset, placed.max_timestamp
        whole.size += size
        self.placed.append(placed)
        self.buffers.append(records)
        self.outcomes.append(
            AppendInfo(first_offset, last_offset, start, max_timestamp, -1, epoch, count, size)
        )

    def _stage(self, records: memoryview, header: BatchHeader, first_offset: int) -> bool:
        """Stage the producer state of a batch. Return False for a duplicate or a rejected batch."""
        known = self._staging.find_duplicate(header)
        if known is None:
            try:
                self._staging.add(records, header, first_offset)
            except StorageError as error:
                self.outcomes.append(error)
                return False
            return True
        info = AppendInfo(first_offset, first_offset - 1, self.info.log_start_offset)
        note_duplicate(info, known)
        self.outcomes.append(info)
        return False


class _Staging:
    """Staged producer states of one write, batch by batch."""

    __slots__ = ("_latest", "_origin", "_producers", "changes")

    def __init__(self, producers: ProducerState, origin: AppendOrigin) -> None:
        self._producers = producers
        self._origin = origin
        # By producer id: the state after its last batch in this append.
        self._latest: dict[int, ProducerEntry] = {}
        # In batch order.
        self.changes: list[ProducerChange] = []

    def find_duplicate(self, header: BatchHeader) -> RememberedBatch | None:
        """Return the earlier append of this batch, which may be staged; None if it is new."""
        return self._producers.find_duplicate(header, self._latest.get(header.producer_id))

    def add(self, batch: memoryview | bytes, header: BatchHeader, offset: int) -> None:
        """Stage one batch of a producer, at `offset`."""
        before = self._latest.get(header.producer_id)
        if header.is_control:
            marker = read_end_marker(batch, header)
            if marker is None:
                return
            change = self._producers.stage_marker(header, marker, offset, self._origin, before)
        else:
            change = ProducerChange(self._producers.stage(header, offset, self._origin, before))
        self._latest[header.producer_id] = change.entry
        self.changes.append(change)


def epochs_of(found: Batches) -> list[EpochEntry]:
    """Return leader epoch and offset of each batch that has a leader epoch."""
    return [
        EpochEntry(header.partition_leader_epoch, header.base_offset)
        for _, header in found
        if header.partition_leader_epoch >= 0
    ]


def place(info: AppendInfo, position: int, header: BatchHeader, base_offset: int) -> PlacedBatch:
    """Add a batch to `info`, and return its place within the append."""
    last_offset = base_offset + header.last_offset_delta
    max_timestamp = header.max_timestamp
    info.last_offset = last_offset
    info.record_count += header.record_count
    if max_timestamp > info.max_timestamp:
        info.max_timestamp = max_timestamp
    return PlacedBatch(position, header.batch_length + LOG_OVERHEAD, last_offset, max_timestamp)


def check_offsets(found: Batches, log_end_offset: int) -> None:
    """Check that a follower's batches continue its log.

    Raises:
        UnexpectedAppendOffsetError: they begin below the log end.
        CorruptRecordError: their offsets are negative, do not increase, or exceed 63 bits.
    """
    first = found[0][1].base_offset
    if first < 0:
        raise CorruptRecordError(f"the first offset is {first}")
    expected = first
    for _, header in found:
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise CorruptRecordError(f"offset {header.base_offset} follows {expected - 1}")
        expected = header.next_offset
    if expected > LONG_MAX:
        raise CorruptRecordError(f"the last offset is {expected - 1}, above {LONG_MAX - 1}")
    if first < log_end_offset:
        raise UnexpectedAppendOffsetError(first, expected - 1, log_end_offset)


def find_duplicate(found: Batches, producers: ProducerState, info: AppendInfo) -> bool:
    """Return whether a batch is a duplicate; if so, put its first append into `info`."""
    for _, header in found:
        if header.producer_id == NO_PRODUCER_ID:
            continue
        known = producers.find_duplicate(header)
        if known is not None:
            note_duplicate(info, known)
            return True
    return False


def note_duplicate(info: AppendInfo, known: RememberedBatch) -> None:
    """Set the result of a duplicate: the offsets of the first append."""
    info.first_offset = known.first_offset
    info.last_offset = known.last_offset
    info.max_timestamp = known.timestamp
    info.log_append_time = known.timestamp
    info.duplicate = True


# Positions in the offset index have 31 bits.
_BYTES_MAX = 0x7FFF_FFFF


def should_roll(segment: Segment, info: AppendInfo, now_ms: int, config: LogConfig) -> bool:
    """Return whether an append needs a new segment, by its size or by the segment's age."""
    if segment.size > config.segment_bytes - info.size:
        return True
    if segment.size:
        # The age counts by record timestamps, if there are any.
        first = segment.first_batch_timestamp
        if first is None:
            first = segment.first_timestamp()
        age_ms = info.max_timestamp - first if first >= 0 else now_ms - segment.created_ms
        if age_ms > config.segment_ms_max - segment.roll_jitter_ms:
            return True
    return must_roll(segment, info)


def must_roll(segment: Segment, info: AppendInfo) -> bool:
    """Return whether the append cannot fit into the segment, regardless of the configuration."""
    return (
        segment.offset_index.is_full
        or segment.time_index.is_full
        or info.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        or segment.size + info.size > _BYTES_MAX
    )


class LogAppender:
    """Appends batches to the active segment."""

    __slots__ = ("_guard", "_leader_epochs", "_local", "_offsets", "_producers", "_roller")

    def __init__(
        self,
        local: LocalLog,
        offsets: LogOffsets,
        guard: DiskGuard,
        leader_epochs: LeaderEpochCache,
        producers: ProducerState,
        roller: LogRoller,
    ) -> None:
        self._local = local
        self._offsets = offsets
        self._guard = guard
        self._leader_epochs = leader_epochs
        self._producers = producers
        self._roller = roller

    def append_as_leader(
        self, records: LeaderRecords, leader_epoch: int, origin: AppendOrigin, now_ms: int
    ) -> AppendInfo:
        """Validate batches, assign offsets and `leader_epoch` to them, and write them once.

        Args:
            records: whole batches in a writable buffer; they are patched in place.
            leader_epoch: the epoch of this broker's leadership.
            origin: decides how much is validated; RAFT batches must already have offsets.
            now_ms: wall clock.

        Returns:
            The appended offsets; for a duplicate, the offsets of the first append.

        Raises:
            StorageError: a subclass with the error code for the client; nothing was written.
            InspectionNeededError: the caller must inspect the client's records first.
        """
        guard = self._guard
        if guard.has_failed or guard.is_closed:
            raise KafkaStorageError(f"{guard.directory} is offline")
        config, offsets = self._local.config, self._offsets
        records, found = validate(records, config, origin, now_ms)
        end = offsets.log_end_offset
        info = AppendInfo(end, end - 1, offsets.log_start_offset)
        if not found:
            info.first_offset = -1
            return info
        if len(records) > config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"an append of {len(records)} bytes exceeds segment.bytes={config.segment_bytes}"
            )
        if origin is _CLIENT and find_duplicate(found, self._producers, info):
            if config.has_log_append_time:
                info.log_append_time = info.max_timestamp
            return info
        placed, changes = assign(records, found, leader_epoch, info, origin, self._producers)
        if config.has_log_append_time:
            info.log_append_time = now_ms
        known = self._leader_epochs.covers(leader_epoch, info.first_offset)
        epochs = () if known else (EpochEntry(leader_epoch, info.first_offset),)
        info.size = len(records)
        self._write(records, info, placed, now_ms, epochs)
        if changes:
            self._commit_producers(changes)
        else:
            self._producers.map_end_offset = info.last_offset + 1
        return info

    def validate_for_joint_append(self, records: memoryview, now_ms: int) -> BatchHeader | None:
        """Validate a client's batch for `append_jointly`.

        Returns:
            The header of the batch, or None if it must be appended alone.
        """
        config = self._local.config
        if not config.keeps_batches or len(records) > config.segment_bytes:
            return None
        return ordinary_header(records, config, now_ms)

    def append_jointly(
        self, joined: Sequence[JoinedBatch], leader_epoch: int, now_ms: int
    ) -> list[AppendInfo | StorageError]:
        """Append the batches of several requests of clients, with one system call if possible.

        Args:
            joined: batches and the results of `validate_for_joint_append`, in the order of the
                requests.
            leader_epoch: the epoch of this broker's leadership.
            now_ms: wall clock.

        Returns:
            For each request the result of `append_as_leader`, or the error that it would raise. If
            the write fails, all requests get its error.
        """
        if len(joined) > 1 and not self._guard.has_failed and not self._guard.is_closed:
            offsets = self._offsets
            end = offsets.log_end_offset
            info = AppendInfo(end, end - 1, offsets.log_start_offset)
            plan = JointPlan(info, leader_epoch, self._producers)
            for records, header in joined:
                plan.add(records, header)
            if self._has_room_for(plan, now_ms):
                return self._append_plan(plan, now_ms)
        outcomes: list[AppendInfo | StorageError] = []
        for records, header in joined:
            validated = InspectedRecords(records, [(0, header)])
            try:
                outcomes.append(self.append_as_leader(validated, leader_epoch, _CLIENT, now_ms))
            except StorageError as error:
                outcomes.append(error)
        return outcomes

    def _has_room_for(self, plan: JointPlan, now_ms: int) -> bool:
        """Return whether the active segment accepts all batches of a plan."""
        try:
            with self._guard:
                return not should_roll(
                    self._local.segments.active, plan.info, now_ms, self._local.config
                )
        except StorageError:
            return False

    def _append_plan(self, plan: JointPlan, now_ms: int) -> list[AppendInfo | StorageError]:
        """Write the batches of a joint append, and return the result of each request."""
        info = plan.info
        if not plan.buffers:
            return plan.outcomes
        epoch, first_offset = info.last_leader_epoch, info.first_offset
        known = self._leader_epochs.covers(epoch, first_offset)
        epochs = () if known else (EpochEntry(epoch, first_offset),)
        try:
            self._write(plan.buffers, info, plan.placed, now_ms, epochs)
        except StorageError as error:
            return [each if isinstance(each, StorageError) else error for each in plan.outcomes]
        self._commit_producers(plan.changes)
        if info.needs_flush or info.rolled:
            for each in plan.outcomes:
                if isinstance(each, AppendInfo) and not each.duplicate:
                    each.needs_flush = info.needs_flush
                    each.rolled = info.rolled
        return plan.outcomes

    def append_as_follower(
        self, records: memoryview | bytes, leader_epoch_max: int = _EPOCH_MAX
    ) -> AppendInfo:
        """Write the leader's batches unchanged, after checking CRCs and offsets.

        Offsets may skip ahead (the leader's log may be compacted) but must not go back. The append
        stops before a truncated batch and before a batch with an epoch above `leader_epoch_max`.

        Raises:
            UnexpectedAppendOffsetError: the first offset is below the log end offset.
            CorruptRecordError: batches or markers are damaged, or offsets do not increase.
            InvalidTxnStateError: a batch does not belong to its producer's open transaction.
        """
        return self._append_unchanged(records, leader_epoch_max, None)

    def append_as_mirror(self, records: memoryview, leader_epoch: int) -> AppendInfo:
        """Write the batches of another cluster's leader with the epoch of this leader.

        Everything else stays: offsets, timestamps, producer ids, control batches and the CRC, which
        does not cover the epoch. `records` is patched in place.

        Returns:
            The appended offsets, with the leader epoch that the last batch had in the other
            cluster.

        Raises:
            StorageError: see `append_as_follower`.
        """
        return self._append_unchanged(records, _EPOCH_MAX, leader_epoch)

    def _append_unchanged(
        self, records: memoryview | bytes, epoch_max: int, own_epoch: int | None
    ) -> AppendInfo:
        """Write a leader's batches with their offsets, and with `own_epoch` if it is given."""
        guard = self._guard
        if guard.has_failed or guard.is_closed:
            raise KafkaStorageError(f"{guard.directory} is offline")
        try:
            found, end = read_followed_batches(records, epoch_max)
        except UnsupportedMagicError as error:
            raise UnsupportedForMessageFormatError(str(error)) from None
        end_offset = self._offsets.log_end_offset
        info = AppendInfo(-1, end_offset - 1, self._offsets.log_start_offset)
        if not found:
            return info
        if end < len(records):
            records = records[:end]
        check_offsets(found, end_offset)
        changes = stage_followed(records, found, self._producers)
        info.first_offset = found[0][1].base_offset
        placed = [place(info, position, header, header.base_offset) for position, header in found]
        info.last_leader_epoch = found[-1][1].partition_leader_epoch
        info.size = len(records)
        epochs = epochs_of(found)
        if own_epoch is not None:
            assert isinstance(records, memoryview)
            for position, header in found:
                set_offset_and_epoch(records, position, header.base_offset, own_epoch)
            epochs = [EpochEntry(own_epoch, info.first_offset)]
        self._write(records, info, placed, self._roller.wall_ms(), epochs)
        self._commit_producers(changes)
        return info

    def _write(
        self,
        records: memoryview | bytes | Sequence[memoryview],
        info: AppendInfo,
        placed: list[PlacedBatch],
        now_ms: int,
        epochs: Sequence[EpochEntry],
    ) -> None:
        """Write the batches to the active segment; roll the segment first if necessary.

        `epochs` has the leader epoch and the offset of each batch that may begin a new epoch. They
        are written to their file first: if that write fails, the append has changed nothing.

        Raises:
            TooManyOpenFilesError: nothing was written, and the log has not changed.
            KafkaStorageError: the disk failed; a part of the batches may have been written.
        """
        offsets = self._offsets
        assert offsets.log_end_offset <= info.first_offset <= info.last_offset, (
            f"NoOffsetTwice: offsets {info.first_offset} to {info.last_offset} are appended at "
            f"log_end_offset={offsets.log_end_offset} directory={self._guard.directory}"
        )
        try:
            segment = self._local.segments.active
            if should_roll(segment, info, now_ms, self._local.config):
                closed = segment
                segment = self._roller.roll_for(now_ms, is_required=must_roll(segment, info))
                info.rolled = segment is not closed
            segment.prepare_append()
            if epochs:
                self._leader_epochs.assign_before_records(epochs)
        except OSError as error:
            raise self._guard.failure(error) from error
        try:
            segment.append(records, info.first_offset, placed)
        except OSError as error:
            raise self._guard.failure(error, is_half_done=True) from error
        self._local.is_changed = True
        offsets.log_end_offset = end = info.last_offset + 1
        info.needs_flush = end - offsets.recovery_point >= self._local.config.flush_messages

    def _commit_producers(self, changes: list[ProducerChange]) -> None:
        """Apply the staged producer changes, now that their batches are in the file."""
        aborted_ones = self._producers.commit_all(changes, self._offsets.log_end_offset)
        if aborted_ones:
            # Memory is updated first, because writing the file may fail.
            with self._guard.of_change:
                for aborted in aborted_ones:
                    self._local.segments.add_aborted(aborted)
