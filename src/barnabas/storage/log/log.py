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

from barnabas.storage.errors import KafkaStorageError, OffsetOutOfRangeError
from barnabas.storage.files.metadata_files import LogIdentity
from barnabas.storage.log.local_log import LocalLog
from barnabas.storage.log.log_appender import LogAppender
from barnabas.storage.log.log_loader import LogLoader
from barnabas.storage.log.log_offsets import LogOffsets
from barnabas.storage.log.log_reader import LogReader
from barnabas.storage.log.log_sync import LogSync
from barnabas.storage.log.roll_and_retention import LogRetention, LogRoller
from barnabas.storage.log_dependencies import DiskGuard
from barnabas.storage.segment.segments import roll_jitter
from barnabas.storage.topic_partition import LOG_SUFFIX, offset_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.storage.config import LogConfig
    from barnabas.storage.files.leader_epoch_cache import LeaderEpochCache
    from barnabas.storage.log.log_loader import LoadedLog
    from barnabas.storage.log_dependencies import LogDependencies, LogOpening
    from barnabas.storage.producers.producer_state import ProducerState
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

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch <= `epoch` and its end offset; (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.offsets.log_end_offset)

    # -- configuration -----------------------------------------------------------------------

    def update_config(self, config: LogConfig) -> None:
        """Apply a changed topic configuration."""
        self._local.update_config(config)

    # -- offsets -----------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark within [log start, log end]; return whether it moved.

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
            self.truncate_fully_and_start_at(offset)
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
        if base_offset <= max(self._local.segments[0].base_offset, self.log_start_offset):
            self.truncate_fully_and_start_at(max(base_offset, self.log_start_offset))
        else:
            # Truncation also removes the last batch of the previous, intact segment.
            self.truncate_to(base_offset - 1)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the empty log starts at `offset`."""
        assert offset >= 0, f"offset={offset} {self.topic_partition}"
        self._local.is_changed = True
        self.sync.on_truncation()
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
        self.offsets.start_at(offset)

    def _rebuild_producer_state(self) -> None:
        LogLoader.load_producer_state(
            self.producer_state,
            self._local.segments,
            range(self.log_start_offset, self.log_end_offset),
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
