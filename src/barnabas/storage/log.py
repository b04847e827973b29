"""One partition's log (Kafka's UnifiedLog): the only place where offsets are assigned.

Bytes come in by call and are written in one go; offset and leader epoch are patched in place, both
lie outside the CRC. Bytes go out as slices of the file. Every failure of the disk is told once to
`LogDoors.on_disk_failure` and raised as KafkaStorageError; after it the log takes nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import UnsupportedMagicError
from barnabas.storage.append_info import AppendInfo, AppendOrigin
from barnabas.storage.append_plan import AppendPlan, check_offsets, note_duplicate, place
from barnabas.storage.disk_guard import DiskGuard
from barnabas.storage.errors import (
    InconsistentTopicIdError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    RecordBatchTooLargeError,
    UnsupportedForMessageFormatError,
)
from barnabas.storage.flusher import Flusher
from barnabas.storage.local_log import LocalLog
from barnabas.storage.offset_search import find_by_timestamp, find_max_timestamp
from barnabas.storage.partition_metadata import write_topic_id
from barnabas.storage.read_result import AbortedTransaction, FetchIsolation, ReadResult
from barnabas.storage.recovery import LogLoader
from barnabas.storage.retention import expired_segments
from barnabas.storage.segment import roll_jitter
from barnabas.storage.transaction_index import AbortedEntry
from barnabas.storage.validator import read_batches, validate

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.config import LogConfig
    from barnabas.storage.doors import LogDoors, LogOpening
    from barnabas.storage.leader_epoch_cache import LeaderEpochCache
    from barnabas.storage.offset_metadata import LogOffsetMetadata
    from barnabas.storage.producer_state import CompletedTxn, ProducerState
    from barnabas.storage.recovery import LoadedLog
    from barnabas.storage.segment import PlacedBatch, Segment
    from barnabas.storage.segments import Segments

_CLIENT = AppendOrigin.CLIENT


class Log:
    """The records of one partition on one broker."""

    __slots__ = (
        "_doors",
        "_flusher",
        "_guard",
        "_high_watermark_metadata",
        "_is_changed",
        "_is_closed",
        "_local",
        "config",
        "cut_count",
        "high_watermark",
        "last_flush_ms",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "producer_state",
        "recovery_point",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        doors: LogDoors,
        opening: LogOpening,
        loaded: LoadedLog,
    ) -> None:
        self._doors = doors
        self._local = LocalLog(directory, config, doors, loaded.segments, loaded.log_end_offset)
        self._flusher = Flusher(self, doors.executor)
        self._guard = DiskGuard(directory, doors.on_disk_failure)
        self.config = config
        self.topic_partition = opening.topic_partition
        # 16 bytes; None while nobody has said it.
        self.topic_id = loaded.topic_id
        self.leader_epochs: LeaderEpochCache = loaded.leader_epochs
        self.producer_state: ProducerState = loaded.producer_state
        # First offset that may be read; moves up only, but for a full truncation.
        self.log_start_offset = loaded.log_start_offset
        # Offset of the next record.
        self.log_end_offset = loaded.log_end_offset
        # How often the log was cut since it was opened.
        self.cut_count = 0
        # Below it everything survived a sync; recovery starts there.
        self.recovery_point = loaded.recovery_point
        # Exclusive end of what every in-sync replica has; moved by the layer above.
        self.high_watermark = min(
            max(opening.high_watermark, self.log_start_offset), self.log_end_offset
        )
        # Where it lies; None until somebody asks.
        self._high_watermark_metadata: LogOffsetMetadata | None = None
        self.producer_state.on_high_watermark_updated(self.high_watermark)
        self.last_flush_ms = doors.clock.monotonic_ms()
        # Whether anything was written since it was opened; if not, closing needs no sync.
        self._is_changed = not opening.clean_shutdown
        self._is_closed = False

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
            doors.on_disk_failure(directory, error)
            raise KafkaStorageError(f"{directory}: {error}") from error

    # -- facts -------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """Where the files lie."""
        return self._local.directory

    @property
    def segments(self) -> Segments:
        """All segments, the active one last."""
        return self._local.segments

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._local.segments.size

    @property
    def latest_epoch(self) -> int | None:
        """Leader epoch of the last batch; None if the log has no epoch."""
        return self.leader_epochs.latest_epoch

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is undecided; never above the high watermark."""
        if self.producer_state.has_transactions:
            first = self.producer_state.first_unstable_offset()
            if first is not None and first < self.high_watermark:
                return max(first, self.log_start_offset)
        return self.high_watermark

    @property
    def is_flush_due(self) -> bool:
        """Whether flush.messages records wait for a sync."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def end_offset_metadata(self) -> LogOffsetMetadata:
        """The log end and where it lies."""
        return self._local.end_metadata()

    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark and where it lies."""
        if self.high_watermark == self.log_end_offset:
            return self._local.end_metadata()
        known = self._high_watermark_metadata
        if known is None or known.message_offset != self.high_watermark:
            known = self._high_watermark_metadata = self.metadata_of(self.high_watermark)
        return known

    def last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """The last stable offset and where it lies."""
        offset = self.last_stable_offset
        if offset == self.high_watermark:
            return self.high_watermark_metadata()
        return self.metadata_of(offset)

    def metadata_of(self, offset: int) -> LogOffsetMetadata:
        """Where an offset between log start and log end lies."""
        with self._guard:
            return self._local.metadata_of(offset)

    def update_config(self, config: LogConfig) -> None:
        """The topic's configuration has changed."""
        self.config = config
        self._local.config = config

    def assign_topic_id(self, topic_id: bytes) -> None:
        """The topic's id has become known.

        Raises:
            InconsistentTopicIdError: the log belongs to another one.
        """
        if self.topic_id is None:
            with self._guard:
                write_topic_id(self._doors.disk, self.directory, topic_id)
            self.topic_id = topic_id
        elif self.topic_id != topic_id:
            raise InconsistentTopicIdError(f"{self.directory} belongs to another topic id")

    # -- appending ---------------------------------------------------------------------------

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, origin: AppendOrigin, now_ms: int
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
        plan = AppendPlan(info)
        plan.assign(records, found, leader_epoch, origin, self.producer_state)
        if config.has_log_append_time:
            info.log_append_time = now_ms
        self._write(records, info, plan.placed, now_ms)
        self.leader_epochs.assign(leader_epoch, info.first_offset)
        for entry, completed in plan.changes:
            self.producer_state.commit(entry, completed)
            self._on_completed(completed)
        self.producer_state.map_end_offset = self.log_end_offset
        info.needs_flush = self.is_flush_due
        return info

    def append_as_follower(self, records: memoryview | bytes) -> AppendInfo:
        """Write the leader's bytes as they are; CRCs are checked, offsets must continue the log.

        Offsets may skip ahead (the leader's log may be compacted), never back.

        Raises:
            UnexpectedAppendOffsetError: the bytes begin below the log end.
            CorruptRecordError: damaged batches, or offsets that do not grow.
        """
        if self._guard.has_failed or self._is_closed:
            raise KafkaStorageError(f"{self.directory} is offline")
        try:
            found = read_batches(records)
        except UnsupportedMagicError as error:
            raise UnsupportedForMessageFormatError(str(error)) from None
        info = AppendInfo(-1, self.log_end_offset - 1, self.log_start_offset)
        if not found:
            return info
        check_offsets(found, self.log_end_offset)
        info.first_offset = found[0][1].base_offset
        placed = [place(info, position, header, header.base_offset) for position, header in found]
        info.last_leader_epoch = found[-1][1].partition_leader_epoch
        self._write(records, info, placed, self._doors.clock.wall_ms())
        for position, header in found:
            if header.partition_leader_epoch >= 0:
                self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
            batch = records[position : position + header.size]
            self._on_completed(self.producer_state.replay(batch, header))
        self.producer_state.map_end_offset = self.log_end_offset
        info.needs_flush = self.is_flush_due
        return info

    def _write(
        self, records: memoryview | bytes, info: AppendInfo, placed: list[PlacedBatch], now_ms: int
    ) -> None:
        """Write the bytes to the active segment, rolling first if it is time."""
        info.size = len(records)
        last_offset = info.last_offset
        try:
            segment = self._local.segments.active
            if segment.should_roll(info.size, last_offset, info.max_timestamp, now_ms, self.config):
                self._roll(now_ms)
                segment = self._local.segments.active
            segment.append(records, info.first_offset, placed)
        except OSError as error:
            raise self._guard.failure(error) from error
        self._is_changed = True
        self.log_end_offset = self._local.log_end_offset = last_offset + 1

    def _on_completed(self, completed: CompletedTxn | None) -> None:
        """A transaction has ended; consumers are told of an aborted one from its index."""
        if completed is None or not completed.is_aborted:
            return
        stable = self.producer_state.last_stable_offset_after(completed)
        entry = AbortedEntry(
            completed.producer_id, completed.first_offset, completed.last_offset, stable
        )
        with self._guard:
            self._local.segments.active.txn_index.append(entry)

    # -- reading -----------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, isolation: FetchIsolation, min_one_batch: bool
    ) -> ReadResult:
        """A slice of the file from the batch that holds `offset` on.

        Args:
            offset: between log start and log end, both allowed.
            max_bytes: limit of the slice; the last batch may be cut off by it.
            isolation: how far the read may see.
            min_one_batch: give the whole first batch, however large.

        Raises:
            OffsetOutOfRangeError: `offset` lies outside [log start, log end].
        """
        end, start = self.log_end_offset, self.log_start_offset
        if offset > end or offset < start:
            raise OffsetOutOfRangeError(f"offset {offset} lies outside [{start}, {end}]")
        if offset == end:
            return self._local.empty_at_end(isolation is FetchIsolation.TXN_COMMITTED)
        if isolation is FetchIsolation.LOG_END:
            bound = self._local.end_metadata()
        elif isolation is FetchIsolation.HIGH_WATERMARK:
            bound = self.high_watermark_metadata()
        else:
            return self._read_committed(offset, max_bytes, min_one_batch)
        return self._read_below(offset, max_bytes, bound, min_one_batch)

    def _read_below(
        self, offset: int, max_bytes: int, bound: LogOffsetMetadata, min_one_batch: bool
    ) -> ReadResult:
        if offset >= bound.message_offset:
            return ReadResult(b"", self.metadata_of(offset))
        try:
            return self._local.read(offset, max_bytes, bound, min_one_batch)
        except OSError as error:
            raise self._guard.failure(error) from error

    def _read_committed(self, offset: int, max_bytes: int, min_one_batch: bool) -> ReadResult:
        bound = self.last_stable_offset_metadata()
        result = self._read_below(offset, max_bytes, bound, min_one_batch)
        aborted: list[AbortedTransaction] = []
        if len(result.records):
            with self._guard:
                aborted = self._local.aborted_within(result, bound.message_offset)
        return result._replace(aborted_transactions=aborted)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record at or after `timestamp`.

        Offsets below the log start are not found; None if no record is that late.
        """
        with self._guard:
            return find_by_timestamp(self._local.segments, timestamp, self.log_start_offset)

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the largest timestamp."""
        with self._guard:
            return find_max_timestamp(self._local.segments, self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch`, its end offset); (-1, -1) if the log does not know it."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # -- watermarks --------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark, held within [log start, log end]; returns whether it moved.

        It may go back: only a leader keeps it from that, and asks before.
        """
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
        watermark and recovery point follow.
        """
        assert offset >= 0, offset
        if offset >= self.log_end_offset:
            return False
        if offset < self._local.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with self._guard:
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

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at `offset`."""
        assert offset >= 0, offset
        self._is_changed = True
        self.cut_count += 1
        with self._guard:
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
            self._doors.clock.wall_ms(),
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
        if len(segments) == len(self._local.segments):
            # All of them: the log goes on in a new, empty one.
            self._roll(self._doors.clock.wall_ms())
        following = self._local.segments.higher(segments[-1].base_offset)
        assert following is not None
        if following.base_offset > self.log_start_offset:
            self.log_start_offset = following.base_offset
            self.leader_epochs.truncate_from_start(self.log_start_offset)
        self._local.delete_segments(segments)
        self.producer_state.remove_snapshots_below(following.base_offset)
        return len(segments)

    def release_idle(self) -> None:
        """Give back descriptors and index memory of synced segments that nobody reads."""
        with self._guard:
            self._local.release_idle(self.recovery_point)

    # -- durability --------------------------------------------------------------------------

    def flush(self, force: bool = False) -> None:
        """Sync all up to the log end, in this turn; with `force` even if nothing is new."""
        if not force and self.recovery_point >= self.log_end_offset:
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

    def prepare_flush(self, is_final: bool = False) -> Callable[[], None]:
        """The work, for any thread, that syncs all that is written now.

        Args:
            is_final: with the indexes of the active segment; without a clean stop they are made
                new when the log is opened.
        """
        paths = self.producer_state.take_unsynced() + self.leader_epochs.take_unsynced()
        return self._local.prepare_sync(self.recovery_point, paths, is_final)

    def on_flushed(self, end_offset: int) -> None:
        """All below `end_offset` is synced."""
        self.last_flush_ms = self._doors.clock.monotonic_ms()
        # A truncation meanwhile has lowered the log end.
        self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset))

    def on_flush_failed(self, error: BaseException) -> None:
        """The sync failed: what was not synced before may be lost, nothing is retried."""
        if isinstance(error, OSError) and not self._is_closed:
            self._guard.failure(error)

    # -- life --------------------------------------------------------------------------------

    def close(self) -> None:
        """Close cleanly: all synced, a producer snapshot at the log end, indexes complete."""
        if self._is_closed:
            return
        with self._guard:
            self.producer_state.map_end_offset = self.log_end_offset
            self.producer_state.take_snapshot()
            self._local.segments.active.seal()
            if self._is_changed:
                self.prepare_flush(is_final=True)()
                self.on_flushed(self.log_end_offset)
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
        self.rename(f"{parent}/{name}")
        self._is_closed = True

    def rename(self, directory: str) -> None:
        """Move the directory; open files stay open."""
        with self._guard:
            self._doors.disk.rename(self.directory, directory)
        self._local.directory = self._guard.directory = directory
        for segment in self._local.segments:
            segment.on_directory_renamed(directory)
        self.producer_state.on_directory_renamed(directory)
        self.leader_epochs.on_directory_renamed(directory)

    def delete(self) -> None:
        """Delete every file and the directory."""
        self._is_closed = True
        self.close_files()
        with self._guard:
            self._doors.disk.remove_tree(self.directory)
