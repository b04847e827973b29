"""Log of one partition (Kafka's UnifiedLog).

`Log` is composed of objects, and each fact is in one of them: `offsets`, `identity`,
`leader_epochs`, `producer_state` (idempotence and transactions), `LocalLog` (segments, config),
`DiskGuard` (directory, failures). `LogAppender`, `LogReader`, `LogSync`, `LogRoller` and
`LogRetention` work on these.

The first disk failure is reported to `LogDependencies.on_disk_failure`; every one is raised as
KafkaStorageError. After a failure the log rejects appends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.errors import (
    CorruptRecordError,
    KafkaStorageError,
    OffsetOutOfRangeError,
)
from barnabas.storage.files.metadata_files import LogIdentity
from barnabas.storage.log.flusher import sync_files
from barnabas.storage.log.local_log import LocalLog
from barnabas.storage.log.log_appender import LogAppender
from barnabas.storage.log.log_loader import LogLoader
from barnabas.storage.log.log_offsets import LogOffsets
from barnabas.storage.log.log_reader import LogReader
from barnabas.storage.log.log_sync import LogSync
from barnabas.storage.log.roll_and_retention import LogRetention, LogRoller
from barnabas.storage.log.segment_copy import (
    COPYABLE_MAX,
    files_of,
    find_copyable,
    segments_above,
)
from barnabas.storage.log_dependencies import DiskGuard
from barnabas.storage.producers.producer_entry import CorruptSnapshotError, decode_snapshot_of
from barnabas.storage.segment.segments import roll_jitter
from barnabas.storage.topic_partition import LOG_SUFFIX, offset_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.storage.config import LogConfig
    from barnabas.storage.files.leader_epoch_cache import EpochEntry, LeaderEpochCache
    from barnabas.storage.log.log_loader import LoadedLog
    from barnabas.storage.log.segment_copy import CopyableSegment
    from barnabas.storage.log_dependencies import LogDependencies, LogOpening
    from barnabas.storage.producers.producer_state import ProducerState
    from barnabas.storage.remote.remote_storage import SegmentFiles
    from barnabas.storage.segment.segments import Segments
    from barnabas.storage.topic_partition import TopicPartition


class Log:
    """The records of one partition on one broker."""

    __slots__ = (
        "_dependencies",
        "_guard",
        "_local",
        "_retention",
        "_roller",
        "appender",
        "identity",
        "leader_epochs",
        "offsets",
        "producer_state",
        "reader",
        "sync",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        dependencies: LogDependencies,
        opening: LogOpening,
        loaded: LoadedLog,
    ) -> None:
        self._dependencies = dependencies
        self._guard = guard = DiskGuard(directory, dependencies)
        self.leader_epochs: LeaderEpochCache = loaded.leader_epochs
        self.producer_state: ProducerState = loaded.producer_state
        self.identity = LogIdentity(
            opening.topic_partition,
            loaded.topic_id,
            is_synced=opening.clean_shutdown,
            disk=dependencies.disk,
            guard=guard,
        )
        # Moved by this class, by the appender and by retention; `sync` raises the recovery point.
        self.offsets = offsets = LogOffsets(
            opening.topic_partition,
            self.producer_state.transactions,
            range(loaded.log_start_offset, loaded.log_end_offset),
            opening.high_watermark,
            loaded.recovery_point,
            loaded.local_log_start_offset,
        )
        self._local = LocalLog(config, dependencies, loaded.segments, offsets, guard)
        self.reader = LogReader(self._local, offsets, guard)
        small_files = (self.leader_epochs, self.producer_state, self.identity)
        self.sync = LogSync(self._local, offsets, guard, small_files, dependencies)
        self._roller = LogRoller(
            self._local, offsets, guard, self.producer_state, self.sync, dependencies
        )
        self.appender = LogAppender(
            self._local, offsets, guard, self.leader_epochs, self.producer_state, self._roller
        )
        self._retention = LogRetention(
            self._local, offsets, guard, self.leader_epochs, self.producer_state, self._roller
        )
        self._local.is_changed = not (opening.clean_shutdown and loaded.is_whole)
        if loaded.is_whole:
            self.sync.on_opened_whole()

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

    # -- properties --------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        """Configuration of the topic."""
        return self._local.config

    @property
    def directory(self) -> str:
        """Path of the log's directory."""
        return self._guard.directory

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the log."""
        return self.identity.topic_partition

    @property
    def topic_id(self) -> bytes | None:
        """Topic id of 16 bytes; None while it is unknown."""
        return self.identity.topic_id

    @property
    def segments(self) -> Segments:
        """All segments; the last one is active."""
        return self._local.segments

    @property
    def size(self) -> int:
        """Total size of all segments in bytes."""
        return self._local.segments.size

    @property
    def latest_epoch(self) -> int | None:
        """Leader epoch of the last batch; None if the log has no epoch."""
        return self.leader_epochs.latest_epoch

    @property
    def log_start_offset(self) -> int:
        """First readable offset."""
        return self.offsets.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """First offset that is readable from local segments; the remote tier has those before."""
        return self.offsets.local_log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record (exclusive end of the log)."""
        return self.offsets.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Exclusive end of the records that every in-sync replica has."""
        return self.offsets.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """First offset of an undecided transaction; at most the high watermark."""
        return self.offsets.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """Exclusive end of the records known to be synced; recovery starts there."""
        return self.offsets.recovery_point

    @property
    def highest_remote_offset(self) -> int:
        """Last offset that the remote tier is known to have, inclusive; -1 if unknown."""
        return self.offsets.highest_remote_offset

    @property
    def verified_remote_offset(self) -> int:
        """Last offset up to which the copies were found in the store again; -1 if unknown."""
        return self.offsets.verified_remote_offset

    @property
    def lacks_epochs(self) -> bool:
        """Whether the epochs of the log's first records are unknown.

        They are if only the remote tier has the records, and the file of epochs was lost. Then
        the local log does not show which remote segments belong to it.
        """
        first = self.leader_epochs.first_offset
        known = self.log_end_offset if first is None else first
        return known > self.log_start_offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch <= `epoch` and its end offset; (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.offsets.log_end_offset)

    # -- configuration -----------------------------------------------------------------------

    def update_config(self, config: LogConfig) -> None:
        """Apply a changed topic configuration."""
        self._local.update_config(config)

    # -- offsets -----------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark within [local log start, log end]; return whether it moved.

        It may move back: a leader that must not move it back checks this before the call.
        """
        return self.offsets.update_high_watermark(offset)

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Raise the log start offset to `offset`, for `reason`; return whether it moved.

        Raises:
            OffsetOutOfRangeError: `offset` is above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"log start {offset} ({reason}) is above the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.offsets.raise_log_start_offset(offset)
        with self._guard:
            self.leader_epochs.truncate_from_start(offset)
        return True

    def raise_highest_remote_offset(self, offset: int) -> bool:
        """Record that the remote tier has the records up to `offset`; return whether it is new."""
        return self.offsets.raise_highest_remote_offset(offset)

    def raise_verified_remote_offset(self, offset: int) -> bool:
        """Record that the copies up to `offset` were verified; return whether that is new.

        Retention deletes local segments only up to this offset and the highest remote offset.
        """
        return self.offsets.raise_verified_remote_offset(offset)

    def restore_epochs(self, entries: Sequence[EpochEntry]) -> None:
        """Add epochs of the first records, which the tier knows, to a log that lacks them.

        Args:
            entries: ascending epochs; those that contradict the known ones are ignored.
        """
        with self._guard:
            self.leader_epochs.restore_start(entries)
            self.leader_epochs.truncate_from_start(self.log_start_offset)

    # -- truncation --------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Truncate the log to `offset`; return whether batches were removed.

        A batch that contains `offset` is removed whole. Indexes, leader epochs, producer state,
        high watermark and recovery point are adjusted. The epoch of a leadership without appends is
        always removed, because the current leader may not know it.
        """
        assert offset >= 0, f"offset={offset} {self.topic_partition}"
        if offset >= self.log_end_offset:
            with self._guard:
                self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self._local.segments[0].base_offset:
            self._truncate_to_tier(offset)
            return True
        with self._guard.of_change:
            self._local.finish_swap()
            self._local.is_changed = True
            self.sync.on_truncation()
            # The next sync and the next recovery must include the whole truncated segment.
            segment = self._local.segments.floor(offset) or self._local.segments[0]
            self.offsets.lower_recovery_point(segment.base_offset)
            self.producer_state.remove_snapshots_above(offset)
            offset = self._local.truncate_to(offset)
            self.offsets.on_truncated(offset)
            self.leader_epochs.truncate_from_end(offset)
            self._rebuild_producer_state()
        return True

    def truncate_damage(self, path: str) -> None:
        """Remove the damaged segment with its file at `path`, and everything after it."""
        base_offset = offset_of(path.rpartition("/")[2], LOG_SUFFIX)
        assert base_offset is not None, f"{path} is not a segment"
        if base_offset <= max(self._local.segments[0].base_offset, self.local_log_start_offset):
            self._truncate_to_tier(max(base_offset, self.local_log_start_offset))
        else:
            # Truncation also removes the last batch of the previous, intact segment.
            self.truncate_to(base_offset - 1)

    def _truncate_to_tier(self, offset: int) -> None:
        """Remove all local records; the remote tier keeps those below `offset`.

        Kafka would start the log at `offset` without them. A later leader with that log start
        deletes them from the tier.
        """
        if offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        epochs = self.leader_epochs.entries_until(offset)
        snapshot = self.producer_state.read_snapshot(offset)
        self.adopt_auxiliary_state(offset, self.log_start_offset, epochs, snapshot)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the empty log starts at `offset`."""
        self.adopt_auxiliary_state(offset, offset, [], b"")

    def adopt_auxiliary_state(
        self, offset: int, log_start_offset: int, epochs: Sequence[EpochEntry], snapshot: bytes
    ) -> None:
        """Remove all local records, and continue at `offset` after records in the remote tier.

        Epochs and snapshot are on disk before the new segment is: after a crash, the log either
        has both, or starts empty.

        Args:
            offset: where the local log starts, empty.
            log_start_offset: the leader's log start offset, at most `offset`.
            epochs: the leader epochs of the records below `offset`.
            snapshot: the producer snapshot at `offset`; empty if there is none.

        Raises:
            CorruptRecordError: the snapshot is damaged; the log has not changed.
        """
        assert 0 <= log_start_offset <= offset, (
            f"log_start_offset={log_start_offset} offset={offset} {self.topic_partition}"
        )
        try:
            producers = decode_snapshot_of(offset, snapshot) if snapshot else []
        except CorruptSnapshotError as error:
            raise CorruptRecordError(f"{self.topic_partition}: {error}") from error
        now_ms = self._dependencies.expiry_clock.wall_ms()
        self._local.is_changed = True
        self.sync.on_truncation()
        with self._guard.of_change:
            self._local.finish_swap()
            self.producer_state.remove_all_snapshots()
            self._local.delete_all()
            paths = self.producer_state.adopt_snapshot(offset, snapshot, producers, now_ms)
            if epochs:
                self.leader_epochs.replace(epochs, log_start_offset)
                paths.append(self.leader_epochs.path)
            else:
                self.leader_epochs.clear()
            if paths:
                sync_files(self._dependencies.disk, self.directory, [], paths, with_parent=False)
            self._local.start_at(
                offset,
                self._dependencies.clock.wall_ms(),
                roll_jitter(self.config, self._dependencies.rng),
            )
        self.offsets.start_at(offset, log_start_offset)
        self.producer_state.transactions.on_high_watermark_updated(offset)

    def _rebuild_producer_state(self) -> None:
        LogLoader.load_producer_state(
            self.producer_state,
            self._local.segments,
            range(self.local_log_start_offset, self.log_end_offset),
            self._dependencies.expiry_clock.wall_ms(),
        )
        self.producer_state.transactions.on_high_watermark_updated(self.high_watermark)

    # -- segments ----------------------------------------------------------------------------

    def roll(self) -> None:
        """Roll to a new segment at the log end, unless the active segment is empty."""
        self._roller.roll()

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention by time, size and log start offset, only below the high watermark.

        Returns:
            The number of segments deleted.
        """
        return self._retention.delete_old_segments(now_ms)

    def copyable_segments(
        self, from_offset: int, stable: int, count_max: int = COPYABLE_MAX
    ) -> list[CopyableSegment]:
        """Return the closed segments with offsets in [from_offset, stable), in order.

        Args:
            from_offset: the first offset without a copy; its segment is included whole.
            stable: the last stable offset; segments that reach beyond it are left out.
            count_max: the largest number of segments to return.
        """
        with self._guard:
            return find_copyable(self._local.segments, from_offset, stable, count_max)

    def open_for_copy(self, base_offset: int) -> SegmentFiles | None:
        """Return the files of a closed segment, or None if the log no longer has the segment.

        The batches are read later, by path. Retention keeps a segment until it was copied, but a
        truncation or DeleteRecords can remove its file before.
        """
        segments = self._local.segments
        segment, following = segments.floor(base_offset), segments.higher(base_offset)
        if segment is None or following is None or segment.base_offset != base_offset:
            return None
        with self._guard:
            end = following.base_offset
            return files_of(segment, end, self.producer_state, self.leader_epochs)

    def local_size_above(self, offset: int) -> int:
        """Return the bytes of the local segments that begin above an offset."""
        return sum(each.size for each in segments_above(self._local.segments, offset))

    def local_count_above(self, offset: int) -> int:
        """Return the number of local segments that begin above an offset."""
        return len(segments_above(self._local.segments, offset))

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
        assert old[-1] is not self.segments.active, (
            f"the active segment {old[-1].base_offset} is not compacted: {self.topic_partition}"
        )
        new = self._local.cleaned_segment(base_offset, size)
        with self._guard:
            self._local.finish_swap()
            self._local.replace_segments(new, old, self.producer_state.remove_snapshot_at)
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
            self._local.release_idle()

    # -- lifecycle ---------------------------------------------------------------------------

    def close(self) -> None:
        """Close cleanly: sync everything, snapshot the producer state, complete the indexes."""
        work = self.prepare_close(with_parent=True)
        if work is not None:
            with self._guard:
                work()
            self.sync.on_flushed(self.log_end_offset)
        self.finish_close()

    def prepare_close(self, with_parent: bool = False) -> Callable[[], None] | None:
        """Write buffered state; return the sync for a clean shutdown, callable on any thread.

        The caller then calls `sync.on_flushed` and `finish_close`. The result is None if the log
        has not changed since it was opened, or if it is closed.
        """
        if self._guard.is_closed:
            return None
        with self._guard:
            self._local.finish_swap()
            self.producer_state.map_end_offset = self.log_end_offset
            self.producer_state.take_snapshot()
            self._local.segments.active.seal()
            return self.sync.prepare_sync(True, with_parent) if self._local.is_changed else None

    def finish_close(self) -> None:
        """Reject further appends and close all descriptors."""
        self._guard.is_closed = True
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
        assert self.log_end_offset == other.log_end_offset, (
            f"the copy ends at {self.log_end_offset}, but the log ends at {other.log_end_offset} "
            f"{self.topic_partition}"
        )
        with self._guard:
            self.leader_epochs.replace(other.leader_epochs.entries)
        self.update_high_watermark(other.high_watermark)
        self.maybe_increment_log_start_offset(other.log_start_offset, "move to another directory")
        self.raise_highest_remote_offset(other.highest_remote_offset)
        self.raise_verified_remote_offset(other.verified_remote_offset)
        self.sync.flush(force=True)

    def take_offline(self) -> None:
        """Reject further appends, because the data directory has failed."""
        self._guard.has_failed = True
        self.close_files()

    def rename(self, directory: str, is_last: bool = False) -> None:
        """Rename the directory; open files stay open. `is_last` makes the log reject appends."""
        with self._guard:
            self._local.finish_swap()
            self._dependencies.disk.rename(self.directory, directory)
        self.sync.on_directory_renamed(self.directory, directory)
        self._guard.directory = directory
        self._local.segments.times.on_directory_renamed(directory)
        for segment in self._local.segments:
            segment.on_directory_renamed(directory)
        self.producer_state.on_directory_renamed(directory)
        self.leader_epochs.on_directory_renamed(directory)
        self._guard.is_closed = self._guard.is_closed or is_last
