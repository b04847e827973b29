"""Appends to a log, as its leader or as a follower; offsets are assigned here only.

An append has three steps. It validates the batches and stages their changes, without changing
anything. It writes them with one system call. It applies the staged changes. The base offset and
the leader epoch are patched in place; both lie outside the CRC.

A joint append does this with the batches of several requests, which gives each its own result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import UnsupportedMagicError
from barnabas.storage.append_info import AppendInfo, AppendOrigin
from barnabas.storage.errors import (
    KafkaStorageError,
    RecordBatchTooLargeError,
    StorageError,
    UnsupportedForMessageFormatError,
)
from barnabas.storage.files.leader_epoch_cache import EpochEntry
from barnabas.storage.log.append_plan import (
    JointPlan,
    assign,
    check_offsets,
    epochs_of,
    find_duplicate,
    place,
    stage_followed,
)
from barnabas.storage.segment.roll_rules import should_roll
from barnabas.storage.validation.inspected_records import InspectedRecords
from barnabas.storage.validation.validator import (
    ordinary_header,
    read_followed_batches,
    validate,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.record.batch import BatchHeader
    from barnabas.storage.files.leader_epoch_cache import LeaderEpochCache
    from barnabas.storage.log.disk_guard import DiskGuard
    from barnabas.storage.log.local_log import LocalLog
    from barnabas.storage.log.log_offsets import LogOffsets
    from barnabas.storage.log.log_roller import LogRoller
    from barnabas.storage.producers.producer_change import ProducerChange
    from barnabas.storage.producers.producer_state import ProducerState
    from barnabas.storage.segment.placed_batch import PlacedBatch
    from barnabas.storage.validation.inspected_records import JoinedBatch, LeaderRecords

_CLIENT = AppendOrigin.CLIENT


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
        info.needs_flush = self._local.is_flush_due
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
        if self._local.is_flush_due:
            for each in plan.outcomes:
                if isinstance(each, AppendInfo) and not each.duplicate:
                    each.needs_flush = True
        return plan.outcomes

    def append_as_follower(self, records: memoryview | bytes, leader_epoch_max: int) -> AppendInfo:
        """Write the leader's batches unchanged, after checking CRCs and offsets.

        Offsets may skip ahead (the leader's log may be compacted) but must not go back. The append
        stops before a truncated batch and before a batch with an epoch above `leader_epoch_max`.

        Raises:
            UnexpectedAppendOffsetError: the first offset is below the log end offset.
            CorruptRecordError: batches or markers are damaged, or offsets do not increase.
            InvalidTxnStateError: a batch does not belong to its producer's open transaction.
        """
        guard = self._guard
        if guard.has_failed or guard.is_closed:
            raise KafkaStorageError(f"{guard.directory} is offline")
        try:
            found, end = read_followed_batches(records, leader_epoch_max)
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
        self._write(records, info, placed, self._roller.wall_ms(), epochs_of(found))
        self._commit_producers(changes)
        info.needs_flush = self._local.is_flush_due
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
                segment = self._roller.roll_for(info, now_ms)
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
        offsets.log_end_offset = info.last_offset + 1

    def _commit_producers(self, changes: list[ProducerChange]) -> None:
        """Apply the staged producer changes, now that their batches are in the file."""
        aborted_ones = self._producers.commit_all(changes, self._offsets.log_end_offset)
        if aborted_ones:
            # Memory is updated first, because writing the file may fail.
            with self._guard.of_change:
                for aborted in aborted_ones:
                    self._local.segments.add_aborted(aborted)
