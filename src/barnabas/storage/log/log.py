"""Log of one partition (Kafka's UnifiedLog), the only place where offsets are assigned.

An append writes its batches with one system call. The base offset and the leader epoch are patched
in place; both lie outside the CRC. `ReadableLog` implements reading. The first disk failure is
reported to `LogDependencies.on_disk_failure`; every one is raised as KafkaStorageError. After a
failure the log rejects appends.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.record.batch import UnsupportedMagicError
from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.append_info import AppendInfo, AppendOrigin
from barnabas.storage.errors import (
    KafkaStorageError,
    OffsetOutOfRangeError,
    RecordBatchTooLargeError,
    UnsupportedForMessageFormatError,
)
from barnabas.storage.file_names import LOG_SUFFIX, PARTITION_METADATA, offset_of
from barnabas.storage.log.append_plan import (
    assign,
    check_offsets,
    epochs_of,
    note_duplicate,
    place,
    stage_followed,
)
from barnabas.storage.log.disk_guard import DiskGuard
from barnabas.storage.log.flusher import Flusher
from barnabas.storage.log.readable_log import ReadableLog
from barnabas.storage.log.retention import expired_segments
from barnabas.storage.log.unsynced_files import UnsyncedFiles
from barnabas.storage.recovery.log_loader import LogLoader
from barnabas.storage.segment.segment import roll_jitter
from barnabas.storage.validation.validator import read_followed_batches, validate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.storage.config import LogConfig
    from barnabas.storage.log.append_plan import Change
    from barnabas.storage.log_dependencies import LogDependencies
    from barnabas.storage.log_opening import LogOpening
    from barnabas.storage.recovery.log_loader import LoadedLog
    from barnabas.storage.segment.segment import PlacedBatch, Segment
    from barnabas.storage.validation.batch_inspection import LeaderRecords

_log = logging.getLogger(__name__)

_CLIENT = AppendOrigin.CLIENT
# The largest leader epoch, that is, no limit.
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
        dependencies: LogDependencies,
        opening: LogOpening,
        loaded: LoadedLog,
    ) -> None:
        super().__init__(directory, config, dependencies, opening, loaded)
        self._flusher = Flusher(self, dependencies)
        # Number of truncations since the log was opened.
        self.cut_count = 0
        self.last_flush_ms = dependencies.clock.monotonic_ms()
        # Whether the log was written to since it was opened. If not, closing needs no sync.
        self._is_changed = not opening.clean_shutdown
        self._is_closed = False
        self._unsynced = UnsyncedFiles()

    @classmethod
    def open(
        cls, directory: str, config: LogConfig, dependencies: LogDependencies, opening: LogOpening
    ) -> Log:
        """Open or create the log in `directory`; recover it after an unclean shutdown.

        Raises:
            KafkaStorageError: the disk failed, or the directory does not contain a valid log.
        """
        try:
            loader = LogLoader(directory, config, dependencies, opening)
            return cls(directory, config, dependencies, opening, loader.load())
        except OSError as error:
            raise DiskGuard(directory, dependencies).failure(error) from error

    # -- configuration -----------------------------------------------------------------------

    def update_config(self, config: LogConfig) -> None:
        """Apply a changed topic configuration."""
        self.config = config
        self._local.config = config
        self._local.may_skip = self._local.may_skip or config.is_compacted

    # -- appending ---------------------------------------------------------------------------

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
            What was appended; for a duplicate, the offsets of the first append.

        Raises:
            StorageError: a subclass with the error code for the client; nothing was written.
            InspectionNeededError: the caller must inspect the client's records first.
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
        """Write the leader's batches unchanged, after checking CRCs and offsets.

        Offsets may skip ahead (the leader's log may be compacted) but must not go back. The append
        stops before a truncated batch and before a batch with an epoch above `leader_epoch_max`.

        Raises:
            UnexpectedAppendOffsetError: the first offset is below the log end offset.
            CorruptRecordError: batches or markers are damaged, or offsets do not increase.
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
        self._write(records, info, placed, self._dependencies.clock.wall_ms(), epochs_of(found))
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
        """Write the batches to the active segment; roll the segment first if necessary.

        `epochs` has the leader epoch and the offset of each batch. They are written to their file
        first: if that write fails, the append has changed nothing.

        Raises:
            TooManyOpenFilesError: nothing was written, and the log has not changed.
            KafkaStorageError: the disk failed; a part of the batches may have been written.
        """
        assert self.log_end_offset <= info.first_offset <= info.last_offset, (
            f"NoOffsetTwice: offsets {info.first_offset} to {info.last_offset} are appended, "
            f"log_end_offset={self.log_end_offset} {self.topic_partition}"
        )
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
        """Apply the staged producer changes, now that their batches are in the file."""
        aborted_ones = self.producer_state.commit_all(changes, self.log_end_offset)
        if aborted_ones:
            # Memory is updated first, because writing the file may fail.
            with self._guard.of_change:
                for aborted in aborted_ones:
                    self._local.segments.add_aborted(aborted)

    def _roll_for(self, info: AppendInfo, now_ms: int) -> Segment:
        """Roll for an append, and return the segment to append to."""
        segment = self._local.segments.active
        try:
            self._roll(now_ms)
        except OSError as error:
            if not is_out_of_descriptors(error) or segment.must_roll(info.size, info.last_offset):
                raise
            # A segment that is too large or too old is better than a rejected append.
            self._dependencies.on_descriptor_shortage()
            return segment
        if self._guard.has_failed:
            # The sync that the roll started has failed.
            raise KafkaStorageError(f"{self.directory} is offline")
        return self._local.segments.active

    # -- watermarks --------------------------------------------------------------------------

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the log start offset to `offset`, for `reason`; return whether it moved.

        Raises:
            OffsetOutOfRangeError: `offset` is above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"log start {offset} ({reason}) above the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._check_order()
        with self._guard:
            self.leader_epochs.truncate_from_start(offset)
        return True

    # -- truncation --------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Truncate the log to `offset`; return whether batches were removed.

        A batch that contains `offset` is removed whole. Indexes, leader epochs, producer state,
        high watermark and recovery point are adjusted. The epoch of a leadership without appends is
        always removed, because the current leader may not know it.
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
            # The next sync and the next recovery must include the whole truncated segment.
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
        """Remove the damaged segment with its file at `path`, and everything after it."""
        base_offset = offset_of(path.rpartition("/")[2], LOG_SUFFIX)
        assert base_offset is not None, path
        if base_offset <= max(self._local.segments[0].base_offset, self.log_start_offset):
            self.truncate_fully_and_start_at(max(base_offset, self.log_start_offset))
        else:
            # Truncation also removes the last batch of the previous, intact segment.
            self.truncate_to(base_offset - 1)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the empty log starts at `offset`."""
        assert offset >= 0, offset
        self._is_changed = True
        self.cut_count += 1
        with self._guard.of_change:
            self._local.finish_swap()
            self.producer_state.remove_all_snapshots()
            self._local.start_at(
                offset,
                self._dependencies.clock.wall_ms(),
                roll_jitter(self.config, self._dependencies.rng),
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
            self._dependencies.expiry_clock.wall_ms(),
        )

    def _after_cut(self) -> None:
        self._high_watermark_metadata = None
        # A truncation removes records below the high watermark only after an unclean election; the
        # high watermark then follows the log end, as in Kafka.
        self.high_watermark = max(
            self.log_start_offset, min(self.high_watermark, self.log_end_offset)
        )
        self.producer_state.on_high_watermark_updated(self.high_watermark)
        self._check_order()

    # -- segments ----------------------------------------------------------------------------

    def roll(self) -> None:
        """Roll to a new segment at the log end, unless the active segment is empty."""
        if self._local.segments.active.size:
            with self._guard:
                self._roll(self._dependencies.clock.wall_ms())

    def _roll(self, now_ms: int) -> None:
        # Recovery of the new segment starts from the producer state at its base offset.
        self.producer_state.map_end_offset = self.log_end_offset
        self.producer_state.take_snapshot()
        self._local.roll(now_ms, roll_jitter(self.config, self._dependencies.rng))
        _log.debug("%s: a new segment begins at %d", self.directory, self.log_end_offset)
        self._high_watermark_metadata = None
        # Sealed segments are synced soon, which keeps recovery after a crash short.
        self._flusher.flush(lambda _: None)

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention by time, size and log start offset, only below the high watermark.

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
            # All segments expire: continue the log in a new, empty segment.
            self._roll(self._dependencies.clock.wall_ms())
        following = self._local.segments.higher(segments[-1].base_offset)
        assert following is not None
        if following.base_offset > self.log_start_offset:
            self.log_start_offset = following.base_offset
            self._check_order()
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
        """Replace sealed segments by a compacted segment that is complete and synced.

        Args:
            base_offset: base offset of the compacted segment, whose files end in `.cleaned`.
            size: size of its batches in bytes.
            replaced: base offsets of the segments that it replaces.

        Returns:
            False, with nothing changed, if the log no longer has all of those segments.
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
        """Whether a swap of compacted segments still has files to rename."""
        return self._local.is_swapping

    def _continue_swap(self) -> None:
        """Process a few files of the swap per turn of the event loop."""
        try:
            with self._guard:
                self._local.continue_swap()
        except KafkaStorageError:
            # The failure of the directory has already been reported.
            return
        if self._local.is_swapping:
            self._dependencies.timer.call_soon(self._continue_swap)

    def close_idle(self) -> None:
        """Close descriptors that were not used since the last call."""
        self._local.close_idle()

    def release_idle(self) -> None:
        """Close descriptors and unload indexes of synced segments that are idle."""
        with self._guard:
            self._local.release_idle(self.recovery_point)

    # -- durability --------------------------------------------------------------------------

    @property
    def is_flush_due(self) -> bool:
        """Whether at least `flush.messages` records are not synced."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def is_synced(self) -> bool:
        """Whether all records are synced, with the indexes of sealed segments."""
        return self.recovery_point >= self.log_end_offset and not self._local.has_unsynced_indexes

    @property
    def safe_recovery_point(self) -> int:
        """Recovery point for the checkpoint: all indexes of segments below it are synced."""
        return self._local.sealed_from(self.recovery_point)

    def flush(self, force: bool = False) -> None:
        """Sync up to the log end offset now; with `force` even if nothing is unsynced."""
        if not force and self.is_synced:
            return
        with self._guard:
            end_offset = self.log_end_offset
            self.prepare_flush()()
            self.on_flushed(end_offset)

    def flush_async(self, on_done: Callable[[BaseException | None], None]) -> None:
        """Sync up to the current log end offset off the event loop, then call `on_done`.

        Args:
            on_done: receives None or the error; may run before this returns if all is synced.
        """
        self._flusher.flush(on_done)

    def prepare_flush(self) -> Callable[[], None]:
        """Return a function, callable on any thread, that syncs all written records.

        The indexes of the active segment are not synced: after an unclean shutdown, opening the log
        rebuilds them.
        """
        return self._prepare_sync(is_final=False, with_parent=True)

    def _prepare_sync(self, is_final: bool, with_parent: bool) -> Callable[[], None]:
        paths = self.leader_epochs.take_unsynced() + self.producer_state.take_unsynced()
        if not self._is_identity_synced and self.topic_id is not None:
            # Without a topic id, the directory has no owner after a power loss.
            self._is_identity_synced = True
            paths.append(f"{self.directory}/{PARTITION_METADATA}")
        active = self._local.segments.active
        if active.is_new:
            # The directory entry is synced along with the first file in this list.
            paths.append(active.path(LOG_SUFFIX))
        if paths:
            self._unsynced.add(paths)
        return self._unsynced.covering(
            lambda unsynced: self._local.prepare_sync(
                self.recovery_point, unsynced, is_final, with_parent
            )
        )

    def on_flushed(self, end_offset: int) -> None:
        """Record that all records below `end_offset` are synced."""
        self.last_flush_ms = self._dependencies.clock.monotonic_ms()
        self._local.on_synced()
        # A truncation during the sync may have lowered the log end offset.
        self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset))
        self._check_order()

    def on_flush_failed(self, error: BaseException) -> None:
        """Handle a failed sync: unsynced records may be lost, and the sync is not retried."""
        if isinstance(error, OSError) and not self._is_closed:
            self._guard.failure(error)

    # -- lifecycle ---------------------------------------------------------------------------

    def close(self) -> None:
        """Close cleanly: sync everything, snapshot the producer state, complete the indexes."""
        work = self.prepare_close(with_parent=True)
        if work is not None:
            with self._guard:
                work()
            self.on_flushed(self.log_end_offset)
        self.finish_close()

    def prepare_close(self, with_parent: bool = False) -> Callable[[], None] | None:
        """Write buffered state; return the sync for a clean shutdown, callable on any thread.

        The caller then calls `on_flushed` and `finish_close`. The result is None if the log has not
        changed since it was opened, or if it is closed.
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
        """Reject further appends and close all descriptors."""
        self._is_closed = True
        self.close_files()

    def close_files(self) -> None:
        """Close all descriptors; a later read opens them again."""
        for segment in self._local.segments:
            segment.close()

    def rename_to_delete(self) -> None:
        """Rename the directory to a `-delete` name; the log rejects further appends."""
        parent, _, _ = self.directory.rpartition("/")
        name = self.topic_partition.deleted_directory_name(self._dependencies.rng.uuid())
        self.rename(f"{parent}/{name}", is_last=True)

    def sync_name(self) -> None:
        """Sync the parent directory, so that the log directory's name survives a power loss."""
        with self._guard:
            self._dependencies.disk.sync_directory(self.directory.rpartition("/")[0] or ".")

    def take_over_from(self, other: Log) -> None:
        """Take the place of `other`, whose records this log has: copy epochs and offsets, sync."""
        assert self.log_end_offset == other.log_end_offset
        with self._guard:
            self.leader_epochs.replace(other.leader_epochs.entries)
        self.update_high_watermark(other.high_watermark)
        self.maybe_increment_log_start_offset(other.log_start_offset, "move to another directory")
        self.flush(force=True)

    def take_offline(self) -> None:
        """Reject further appends, because the data directory has failed."""
        self._guard.has_failed = True
        self.close_files()

    def rename(self, directory: str, is_last: bool = False) -> None:
        """Rename the directory; open files stay open. `is_last` makes the log reject appends."""
        with self._guard:
            self._local.finish_swap()
            self._dependencies.disk.rename(self.directory, directory)
        self._unsynced.on_directory_renamed(self.directory, directory)
        self._local.directory = self._guard.directory = directory
        for segment in self._local.segments:
            segment.on_directory_renamed(directory)
        self.producer_state.on_directory_renamed(directory)
        self.leader_epochs.on_directory_renamed(directory)
        self._is_closed = self._is_closed or is_last
