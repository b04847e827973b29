"""One partition's log (Kafka's UnifiedLog): the only place where offsets are assigned.

Bytes come in by call and are written in one go; offset and leader epoch are patched in place, both
lie outside the CRC. Reading is inherited from `ReadableLog`. Every failure of the disk is told once
to `LogDoors.on_disk_failure` and raised as KafkaStorageError; after it the log takes nothing more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.record.batch import UnsupportedMagicError
from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.append_info import AppendInfo, AppendOrigin
from barnabas.storage.append_plan import (
    assign,
    check_offsets,
    epochs_of,
    note_duplicate,
    place,
    stage_followed,
)
from barnabas.storage.disk_guard import DiskGuard
from barnabas.storage.errors import (
    KafkaStorageError,
    OffsetOutOfRangeError,
    RecordBatchTooLargeError,
    UnsupportedForMessageFormatError,
)
from barnabas.storage.file_names import LOG_SUFFIX, PARTITION_METADATA, offset_of
from barnabas.storage.flusher import Flusher
from barnabas.storage.readable_log import ReadableLog
from barnabas.storage.recovery import LogLoader
from barnabas.storage.retention import expired_segments
from barnabas.storage.segment import roll_jitter
from barnabas.storage.unsynced_files import UnsyncedFiles
from barnabas.storage.validator import read_followed_batches, validate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.storage.append_plan import Change
    from barnabas.storage.batch_inspection import LeaderRecords
    from barnabas.storage.config import LogConfig
    from barnabas.storage.doors import LogDoors, LogOpening
    from barnabas.storage.recovery import LoadedLog
    from barnabas.storage.segment import PlacedBatch, Segment

_log = logging.getLogger(__name__)

_CLIENT = AppendOrigin.CLIENT
# No leader epoch is above it.
EPOCH_MAX = 0x7FFF_FFFF


class Log(ReadableLog):
    """The records of one partition on one broker."""

    __slots__ = (
        "_flusher",
        "_is_changed",
        "_is_closed",
        "_unsynced",
        "cut_count",
        "last_flush_ms",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        doors: LogDoors,
        opening: LogOpening,
        loaded: LoadedLog,
    ) -> None:
        super().__init__(directory, config, doors, opening, loaded)
        self._flusher = Flusher(self, doors)
        # How often the log was cut since it was opened.
        self.cut_count = 0
        self.last_flush_ms = doors.clock.monotonic_ms()
        # Whether anything was written since it was opened; if not, closing needs no sync.
        self._is_changed = not opening.clean_shutdown
        self._is_closed = False
        self._unsynced = UnsyncedFiles()

    @classmethod
    def open(cls, directory: str, config: LogConfig, doors: LogDoors, opening: LogOpening) -> Log:
        """Open or make the log in `directory`, recovering it if it was not closed cleanly.

        Raises:
            KafkaStorageError: the disk failed, or holds something that is no log.
        """
        try:
            loader = LogLoader(directory, config, doors, opening)
            return cls(directory, config, doors, opening, loader.load())
        except OSError as error:
            raise DiskGuard(directory, doors).failure(error) from error

    # -- configuration -----------------------------------------------------------------------

    def update_config(self, config: LogConfig) -> None:
        """The topic's configuration has changed."""
        self.config = config
        self._local.config = config
        self._local.may_skip = self._local.may_skip or config.is_compacted

    # -- appending ---------------------------------------------------------------------------

    def append_as_leader(
        self, records: LeaderRecords, leader_epoch: int, origin: AppendOrigin, now_ms: int
    ) -> AppendInfo:
        """Validate batches, give them offsets and `leader_epoch`, write them once.

        Args:
            records: whole batches in a writable buffer; they are patched in place.
            leader_epoch: of this broker's leadership.
            origin: how much is checked; RAFT batches must have their offsets already.
            now_ms: wall clock.

        Returns:
            What was appended; for a duplicate where it was appended before.

        Raises:
            StorageError: one of its kinds, with the code for the peer; nothing was written.
            InspectionNeededError: a client's records must be looked into first.
        """
        if self._guard.has_failed or self._is_closed:
            raise KafkaStorageError(f"{self.directory} is offline")
        config = self.config
        records, found = validate(records, config, origin, now_ms)
        info = AppendInfo(self.log_end_offset, self.log_end_offset - 1, self.log_start_offset)
        if not found:
            info.first_offset = -1
            return info
        if len(records) > config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"{len(records)} bytes in one append, segment.bytes is {config.segment_bytes}"
            )
        if origin is _CLIENT and note_duplicate(found, self.producer_state, info):
            if config.has_log_append_time:
                info.log_append_time = info.max_timestamp
            return info
        placed, changes = assign(records, found, leader_epoch, info, origin, self.producer_state)
        if config.has_log_append_time:
            info.log_append_time = now_ms
        self._write(records, info, placed, now_ms, [(leader_epoch, info.first_offset)])
        self._commit_producers(changes)
        info.needs_flush = self.is_flush_due
        return info

    def append_as_follower(
        self, records: memoryview | bytes, leader_epoch_max: int = EPOCH_MAX
    ) -> AppendInfo:
        """Write the leader's bytes as they are; CRCs are checked, offsets must continue the log.

        Offsets may skip ahead (the leader's log may be compacted), never back. A batch whose end is
        cut off, or of a later epoch than `leader_epoch_max`, is left out with all behind it.

        Raises:
            UnexpectedAppendOffsetError: the bytes begin below the log end.
            CorruptRecordError: damaged batches or markers, or offsets that do not grow.
            InvalidTxnStateError: a batch does not belong to its producer's open transaction.
        """
        if self._guard.has_failed or self._is_closed:
            raise KafkaStorageError(f"{self.directory} is offline")
        try:
            found, end = read_followed_batches(records, leader_epoch_max)
        except UnsupportedMagicError as error:
            raise UnsupportedForMessageFormatError(str(error)) from None
        info = AppendInfo(-1, self.log_end_offset - 1, self.log_start_offset)
        if not found:
            return info
        if end < len(records):
            records = records[:end]
        check_offsets(found, self.log_end_offset)
        changes = stage_followed(records, found, self.producer_state)
        info.first_offset = found[0][1].base_offset
        placed = [place(info, position, header, header.base_offset) for position, header in found]
        info.last_leader_epoch = found[-1][1].partition_leader_epoch
        self._write(records, info, placed, self._doors.clock.wall_ms(), epochs_of(found))
        self._commit_producers(changes)
        info.needs_flush = self.is_flush_due
        return info

    def _write(
        self,
        records: memoryview | bytes,
        info: AppendInfo,
        placed: list[PlacedBatch],
        now_ms: int,
        epochs: list[tuple[int, int]],
    ) -> None:
        """Write the bytes to the active segment, rolling first if it is time.

        `epochs` (of each batch, with its offset) are written to their file first: if that fails,
        the append has changed nothing.

        Raises:
            TooManyOpenFilesError: nothing was written, and the log has not changed.
            KafkaStorageError: the disk has failed, and perhaps a part was written.
        """
        info.size = len(records)
        try:
            segment = self._local.segments.active
            if segment.should_roll(
                info.size, info.last_offset, info.max_timestamp, now_ms, self.config
            ):
                segment = self._roll_for(info, now_ms)
            segment.prepare_append()
            self.leader_epochs.assign_before_records(epochs)
        except OSError as error:
            raise self._guard.failure(error) from error
        try:
            segment.append(records, info.first_offset, placed)
        except OSError as error:
            raise self._guard.failure(error, is_half_done=True) from error
        self._is_changed = True
        self.log_end_offset = self._local.log_end_offset = info.last_offset + 1

    def _commit_producers(self, changes: list[Change]) -> None:
        """Take over what was staged of the producers, since their batches are in the file."""
        aborted_ones = self.producer_state.commit_all(changes, self.log_end_offset)
        if aborted_ones:
            # The memory is complete: now the file that may fail.
            with self._guard.of_change:
                for aborted in aborted_ones:
                    self._local.segments.add_aborted(aborted)

    def _roll_for(self, info: AppendInfo, now_ms: int) -> Segment:
        """Begin a new segment for an append; returns the segment to append to."""
        segment = self._local.segments.active
        try:
            self._roll(now_ms)
        except OSError as error:
            if not is_out_of_descriptors(error) or segment.must_roll(info.size, info.last_offset):
                raise
            # A segment that is larger, or older, than configured is better than a refused append.
            self._doors.on_descriptor_shortage()
            return segment
        if self._guard.has_failed:
            # The sync that a roll begins has failed.
            raise KafkaStorageError(f"{self.directory} is offline")
        return self._local.segments.active

    # -- watermarks --------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark, held within [log start, log end]; returns whether it moved.

        It may go back: only a leader keeps it from that, and asks before.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self.producer_state.on_high_watermark_updated(offset)
        return True

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Forget what lies below `offset`, for `reason`; returns whether the start moved.

        Raises:
            OffsetOutOfRangeError: `offset` lies above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"log start {offset} ({reason}) above the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        with self._guard:
            self.leader_epochs.truncate_from_start(offset)
        return True

    # -- cutting -----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop all from `offset` on; returns whether there was anything.

        A batch that holds `offset` goes as a whole. Indexes, leader epochs, producers, high
        watermark and recovery point follow. The epoch of a leadership that appended nothing goes
        in any case: the present leader may not know it.
        """
        assert offset >= 0, offset
        if offset >= self.log_end_offset:
            with self._guard:
                self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self._local.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with self._guard.of_change:
            self._local.finish_swap()
            self._is_changed = True
            self.cut_count += 1
            # The whole segment that is cut: the next sync and the next recovery must include it.
            segment = self._local.segments.floor(offset) or self._local.segments[0]
            self.recovery_point = min(self.recovery_point, segment.base_offset)
            self.producer_state.remove_snapshots_above(offset)
            self._local.truncate_to(offset)
            self.log_end_offset = offset = self._local.log_end_offset
            self.leader_epochs.truncate_from_end(offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self._rebuild_producer_state()
        self._after_cut()
        return True

    def cut_damage(self, path: str) -> None:
        """Drop the damaged segment with its file at `path`, and all behind it."""
        base_offset = offset_of(path.rpartition("/")[2], LOG_SUFFIX)
        assert base_offset is not None, path
        if base_offset <= max(self._local.segments[0].base_offset, self.log_start_offset):
            self.truncate_fully_and_start_at(max(base_offset, self.log_start_offset))
        else:
            # With the last batch before it, whose segment is cut where it is intact.
            self.truncate_to(base_offset - 1)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at `offset`."""
        assert offset >= 0, offset
        self._is_changed = True
        self.cut_count += 1
        with self._guard.of_change:
            self._local.finish_swap()
            self.producer_state.remove_all_snapshots()
            self._local.start_at(
                offset, self._doors.clock.wall_ms(), roll_jitter(self.config, self._doors.rng)
            )
            self.leader_epochs.clear()
            self.producer_state.clear(offset)
        self.recovery_point = offset
        self.log_start_offset = self.log_end_offset = offset
        self._after_cut()

    def _rebuild_producer_state(self) -> None:
        LogLoader.load_producer_state(
            self.producer_state,
            self._local.segments,
            (self.log_start_offset, self.log_end_offset),
            self._doors.expiry_clock.wall_ms(),
        )

    def _after_cut(self) -> None:
        self._high_watermark_metadata = None
        self.high_watermark = max(
            self.log_start_offset, min(self.high_watermark, self.log_end_offset)
        )
        self.producer_state.on_high_watermark_updated(self.high_watermark)

    # -- segments ----------------------------------------------------------------------------

    def roll(self) -> None:
        """Begin a new segment at the log end, unless the active one is empty."""
        if self._local.segments.active.size:
            with self._guard:
                self._roll(self._doors.clock.wall_ms())

    def _roll(self, now_ms: int) -> None:
        # The state at the new segment's start: recovery of that segment begins with it.
        self.producer_state.map_end_offset = self.log_end_offset
        self.producer_state.take_snapshot()
        self._local.roll(now_ms, roll_jitter(self.config, self._doors.rng))
        _log.debug("%s: a new segment begins at %d", self.directory, self.log_end_offset)
        self._high_watermark_metadata = None
        # Sealed segments are synced soon, which keeps recovery after a crash short.
        self._flusher.flush(lambda _: None)

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention by time, size and log start offset, below the high watermark only.

        Returns:
            The number of segments deleted.
        """
        with self._guard:
            return sum(
                self._delete_segments(segments) for segments in expired_segments(self, now_ms)
            )

    def _delete_segments(self, segments: list[Segment]) -> int:
        if not segments:
            return 0
        self._local.finish_swap()
        if len(segments) == len(self._local.segments):
            # All of them: the log goes on in a new, empty one.
            self._roll(self._doors.clock.wall_ms())
        following = self._local.segments.higher(segments[-1].base_offset)
        assert following is not None
        if following.base_offset > self.log_start_offset:
            self.log_start_offset = following.base_offset
            self.leader_epochs.truncate_from_start(self.log_start_offset)
        self._local.delete_segments(segments)
        _log.debug(
            "%s: %d segments below %d are deleted",
            self.directory,
            len(segments),
            following.base_offset,
        )
        self.producer_state.remove_snapshots_below(following.base_offset)
        return len(segments)

    def replace_segments(self, base_offset: int, size: int, replaced: Sequence[int]) -> bool:
        """Let a compacted segment, complete and synced, take the place of sealed ones.

        Args:
            base_offset: of its files, which have the suffix `.cleaned`.
            size: bytes of its batches.
            replaced: base offsets of the segments whose records it has.

        Returns:
            False, and nothing is done, if the log does not have all of those any more.
        """
        old = self.segments.find_exactly(replaced)
        if old is None:
            return False
        assert old[-1] is not self.segments.active, "the active segment is never compacted"
        new = self._local.cleaned_segment(base_offset, size)
        with self._guard:
            self._local.finish_swap()
            self._local.replace_segments(new, old, self.producer_state.remove_snapshot_at)
        self._high_watermark_metadata = None
        self._continue_swap()
        return True

    @property
    def is_swapping(self) -> bool:
        """Whether the files of segments that were replaced still have their names."""
        return self._local.is_swapping

    def _continue_swap(self) -> None:
        """A few files per turn."""
        try:
            with self._guard:
                self._local.continue_swap()
        except KafkaStorageError:
            # The directory is offline, which was told.
            return
        if self._local.is_swapping:
            self._doors.timer.call_soon(self._continue_swap)

    def close_idle(self) -> None:
        """Give back descriptors that were not used since the last call."""
        self._local.close_idle()

    def release_idle(self) -> None:
        """Give back descriptors and index memory of synced segments that nobody reads."""
        with self._guard:
            self._local.release_idle(self.recovery_point)

    # -- durability --------------------------------------------------------------------------

    @property
    def is_flush_due(self) -> bool:
        """Whether flush.messages records wait for a sync."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def is_synced(self) -> bool:
        """Whether all that is written is synced, the indexes of sealed segments too."""
        return self.recovery_point >= self.log_end_offset and not self._local.has_unsynced_indexes

    @property
    def safe_recovery_point(self) -> int:
        """What may be noted on disk: no segment below it has indexes that were not synced."""
        return self._local.sealed_from(self.recovery_point)

    def flush(self, force: bool = False) -> None:
        """Sync all up to the log end, in this turn; with `force` even if nothing is new."""
        if not force and self.is_synced:
            return
        with self._guard:
            end_offset = self.log_end_offset
            self.prepare_flush()()
            self.on_flushed(end_offset)

    def flush_async(self, on_done: Callable[[BaseException | None], None]) -> None:
        """Sync off the loop all up to what is the log end now, then call back.

        Args:
            on_done: gets None or the error; may run before this returns if nothing is to be synced.
        """
        self._flusher.flush(on_done)

    def prepare_flush(self) -> Callable[[], None]:
        """The work, for any thread, that syncs all that is written now.

        The indexes of the active segment are left out: without a clean stop they are made new when
        the log is opened.
        """
        return self._prepare_sync(is_final=False, with_parent=True)

    def _prepare_sync(self, is_final: bool, with_parent: bool) -> Callable[[], None]:
        paths = self.leader_epochs.take_unsynced() + self.producer_state.take_unsynced()
        if not self._is_identity_synced and self.topic_id is not None:
            # Without it the directory would be nobody's after a loss of power.
            self._is_identity_synced = True
            paths.append(f"{self.directory}/{PARTITION_METADATA}")
        active = self._local.segments.active
        if active.is_new:
            # Its name is synced with the first file of this list.
            paths.append(active.path(LOG_SUFFIX))
        if paths:
            self._unsynced.add(paths)
        return self._unsynced.covering(
            lambda unsynced: self._local.prepare_sync(
                self.recovery_point, unsynced, is_final, with_parent
            )
        )

    def on_flushed(self, end_offset: int) -> None:
        """All below `end_offset` is synced."""
        self.last_flush_ms = self._doors.clock.monotonic_ms()
        self._local.on_synced()
        # A truncation meanwhile has lowered the log end.
        self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset))

    def on_flush_failed(self, error: BaseException) -> None:
        """The sync failed: what was not synced before may be lost, nothing is retried."""
        if isinstance(error, OSError) and not self._is_closed:
            self._guard.failure(error)

    # -- life --------------------------------------------------------------------------------

    def close(self) -> None:
        """Close cleanly: all synced, a producer snapshot at the log end, indexes complete."""
        work = self.prepare_close(with_parent=True)
        if work is not None:
            with self._guard:
                work()
            self.on_flushed(self.log_end_offset)
        self.finish_close()

    def prepare_close(self, with_parent: bool = False) -> Callable[[], None] | None:
        """Write out what is in memory; returns the sync that a clean stop needs, for any thread.

        `on_flushed` and `finish_close` follow. None: nothing has changed since it was opened.
        """
        if self._is_closed:
            return None
        with self._guard:
            self._local.finish_swap()
            self.producer_state.map_end_offset = self.log_end_offset
            self.producer_state.take_snapshot()
            self._local.segments.active.seal()
            return self._prepare_sync(True, with_parent) if self._is_changed else None

    def finish_close(self) -> None:
        """Take nothing more, and give all descriptors back."""
        self._is_closed = True
        self.close_files()

    def close_files(self) -> None:
        """Give all descriptors back; what is read later opens them again."""
        for segment in self._local.segments:
            segment.close()

    def rename_to_delete(self) -> None:
        """Move the directory to a name that says it waits for deletion; nothing more is taken."""
        parent, _, _ = self.directory.rpartition("/")
        name = self.topic_partition.deleted_directory_name(self._doors.rng.uuid())
        self.rename(f"{parent}/{name}", is_last=True)

    def sync_name(self) -> None:
        """The directory's name survives the loss of power."""
        with self._guard:
            self._doors.disk.sync_directory(self.directory.rpartition("/")[0] or ".")

    def take_over_from(self, other: Log) -> None:
        """Be what `other` was, whose records this log has all: all synced, and with its marks."""
        assert self.log_end_offset == other.log_end_offset
        with self._guard:
            self.leader_epochs.replace(other.leader_epochs.entries)
        self.update_high_watermark(other.high_watermark)
        self.maybe_increment_log_start_offset(other.log_start_offset, "move to another directory")
        self.flush(force=True)

    def take_offline(self) -> None:
        """The data directory has failed: nothing more is taken."""
        self._guard.has_failed = True
        self.close_files()

    def rename(self, directory: str, is_last: bool = False) -> None:
        """Move the directory; open files stay open. After the last renaming nothing is taken."""
        with self._guard:
            self._local.finish_swap()
            self._doors.disk.rename(self.directory, directory)
        self._unsynced.on_directory_renamed(self.directory, directory)
        self._local.directory = self._guard.directory = directory
        for segment in self._local.segments:
            segment.on_directory_renamed(directory)
        self.producer_state.on_directory_renamed(directory)
        self.leader_epochs.on_directory_renamed(directory)
        self._is_closed = self._is_closed or is_last
