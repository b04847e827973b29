"""Opening a log: select its files, repair it after a crash, find its end (Kafka's LogLoader).

After a clean shutdown, only the last few batches are read, and after a kill too if nothing was
written since the last complete sync. Otherwise every segment above the recovery point is read and
each CRC is checked. The first invalid batch ends the log. Indexes are rebuilt, and producer state
is replayed from the last snapshot before that point.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from barnabas.storage.config import LONG_MAX
from barnabas.storage.errors import (
    DamagedLogError,
    DamageKind,
    InconsistentTopicIdError,
    StorageError,
)
from barnabas.storage.files.leader_epoch_cache import EpochEntry, LeaderEpochCache
from barnabas.storage.files.metadata_files import read_topic_id, write_topic_id
from barnabas.storage.log.batch_order import BatchOrder, clean_end, idle_end, overlaps
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.storage.segment.batch_scan import describe_end, headers, valid_batches
from barnabas.storage.segment.largest_timestamps import LargestTimestamps
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.segments import Segments, finish_swaps, roll_jitter
from barnabas.storage.topic_partition import (
    DELETED_FILE_SUFFIX,
    INDEX_SUFFIX,
    LARGEST_TIMESTAMPS,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from barnabas.record.batch import BatchHeader
    from barnabas.storage.config import LogConfig
    from barnabas.storage.log_dependencies import LogDependencies, LogOpening
    from barnabas.storage.producers.producer_entry import CompletedTxn

_log = logging.getLogger(__name__)


# Bytes checked per slice; this takes some tens of milliseconds.
_SLICE_BYTES = 16 << 20


class LoadedLog(msgspec.Struct, frozen=True):
    """State of a log after loading its directory."""

    segments: Segments
    leader_epochs: LeaderEpochCache
    producer_state: ProducerState
    log_start_offset: int
    # Above the log start if the remote tier has the records in between.
    local_log_start_offset: int
    log_end_offset: int
    recovery_point: int
    # None while the topic id is unknown.
    topic_id: bytes | None
    # Whether no segment and no index was changed since it was synced completely.
    is_whole: bool


class LogLoader:
    """Loads the log of one directory."""

    __slots__ = (
        "_config",
        "_dependencies",
        "_directory",
        "_disk",
        "_epochs",
        "_epochs_are_whole",
        "_has_truncated",
        "_is_replayed",
        "_is_whole",
        "_opening",
        "_order",
        "_producers",
        "_times",
    )

    def __init__(
        self, directory: str, config: LogConfig, dependencies: LogDependencies, opening: LogOpening
    ) -> None:
        self._directory = directory
        self._config = config
        self._dependencies = dependencies
        self._disk = dependencies.disk
        self._opening = opening
        # Whether records or whole segments were removed; this has been reported.
        self._has_truncated = False
        # Whether recovery has already replayed the producer state up to the log's end.
        self._is_replayed = False
        # Whether no segment and no index was changed since it was synced completely.
        self._is_whole = False
        self._producers = ProducerState(
            dependencies.disk, directory, opening.producer_id_expiration_ms
        )
        self._producers.requires_verification = opening.verifies_transactions
        self._epochs = LeaderEpochCache(dependencies.disk, directory)
        # Whether the file of leader epochs existed and could be read.
        self._epochs_are_whole = False
        self._times = LargestTimestamps(dependencies.disk, directory)

    def load(self) -> LoadedLog:
        """Repair the directory, and return the state of its log."""
        slices = self.load_in_slices()
        while True:
            try:
                next(slices)
            except StopIteration as done:
                loaded: LoadedLog = done.value
                return loaded

    def load_in_slices(self) -> Generator[None, None, LoadedLog]:
        """Do the same as `load` in bounded steps, so that a large log does not block the loop."""
        names = self._list()
        self._producers.find_snapshots(names)
        self._epochs_are_whole = LEADER_EPOCH_CHECKPOINT in names and self._epochs.load()
        if self._epochs_are_whole and not self._opening.clean_shutdown:
            self._epochs.mark_unsynced()
        segments = yield from self._find_segments(names)
        end: int | None = None
        recover_from: int | None = None
        present = set(names)
        if self._opening.clean_shutdown:
            self._repair_indexes(segments, present)
            end = clean_end(segments, self._epochs, self._opening.recovery_point)
            if end is not None:
                recover_from = yield from self._damaged_transactions(segments, end, present)
        else:
            end = idle_end(
                segments,
                present,
                self._epochs,
                self._opening.recovery_point,
                self._producers.snapshots,
            )
            if end is not None:
                self._repair_indexes(segments[:-1], present)
                segments[-1].remove_padding()
                recover_from = yield from self._damaged_transactions(segments[-1:], end, present)
        self._is_whole = end is not None
        end = end if recover_from is None else None
        if end is None and segments:
            end = yield from self._recover(segments, present, recover_from)
        if end is None or end < self._log_start(end):
            segments, end = self._start_empty(segments), self._opening.log_start_offset
        return self._finish(Segments(segments, self._times), end, present)

    def _finish(self, segments: Segments, end: int, present: set[str]) -> LoadedLog:
        first = segments[0].base_offset
        start = max(self._log_start(end), 0 if self._config.is_remote else first)
        if not self._epochs_are_whole and segments.size:
            self._report_epochs()
            self._epochs.replace(_epochs_in(segments))
        self._report_lost_records(segments, end)
        # This precedes `forget_from`: if all segments were deleted, the epochs still have the log
        # start.
        start = max(start, min(self._start_by_epochs(segments, start), end))
        local_start = max(start, first)
        self._epochs.forget_from(end)
        self._epochs.truncate_from_start(start)
        # A crash between the removal of a segment and of its snapshot leaves the snapshot.
        self._producers.remove_stray_snapshots({segment.base_offset for segment in segments})
        if self._producers.map_end_offset != end or not self._is_replayed:
            now_ms = self._dependencies.expiry_clock.wall_ms()
            self.load_producer_state(self._producers, segments, range(local_start, end), now_ms)
        self._report_snapshots()
        segments.restore_times(local_start)
        for segment in segments:
            # Ten thousand logs must not hold as many descriptors; the first use opens the file.
            segment.close()
        # Recovered batches above the recovery point may be unsynced, so the point does not rise.
        recovery_point = min(self._opening.recovery_point, end)
        return LoadedLog(
            segments,
            self._epochs,
            self._producers,
            start,
            local_start,
            end,
            recovery_point,
            self._topic_id(PARTITION_METADATA in present),
            self._is_whole,
        )

    def _log_start(self, end: int) -> int:
        """Return the checkpointed log start, unless it contradicts a clean shutdown."""
        start = self._opening.log_start_offset
        return 0 if self._opening.clean_shutdown and end < start else start

    def _report_lost_records(self, segments: Segments, end: int) -> None:
        """Report records that the log once had and has lost, unless recovery reported it."""
        if self._has_truncated:
            return
        problems = []
        known_end = max(self._opening.recovery_point, self._opening.high_watermark)
        entries = self._epochs.entries
        if end < known_end:
            problems.append(f"the log ends at offset {end}, but had records below {known_end}")
        # An epoch may start at the end: Kafka's leaders write it before their first record.
        elif entries and entries[-1].start_offset > end:
            problems.append(
                f"the log ends at offset {end}, but had records at {entries[-1].start_offset}"
            )
        first = segments[0].base_offset
        if entries and entries[0].start_offset < first and not self._config.has_or_had_tier:
            # Deleting records raises the first epoch's start offset.
            problems.append(
                f"offsets {entries[0].start_offset} to {first - 1} are missing at its beginning"
            )
        action = "the log keeps its other records; only other replicas have the lost records"
        for problem in problems:
            self._dependencies.damage.report(DamageKind.GAP, self._directory, problem, action)

    def _report_epochs(self) -> None:
        if not self._opening.clean_shutdown:
            # A power loss explains the damage.
            _log.warning("Rebuilt the missing or damaged leader epochs: path=%s", self._epochs.path)
            return
        action = "the leader epochs were read from the batches; no action is needed"
        problem = "the file is missing or damaged"
        self._dependencies.damage.report(DamageKind.EPOCHS, self._epochs.path, problem, action)

    def _report_snapshots(self) -> None:
        action = (
            "removed; the state was read from an older snapshot and the batches; no action "
            "is needed"
        )
        for path in self._producers.damaged_snapshots:
            problem = "the producer snapshot cannot be read"
            self._dependencies.damage.report(DamageKind.PRODUCERS, path, problem, action)

    def _start_by_epochs(self, segments: Segments, start: int) -> int:
        """Return the log start offset, also considering the file of leader epochs.

        Deleting records truncates that file at once; the log start checkpoint follows up to a
        minute later. If deleted records came back without their epochs, a follower could not find
        the offset at which its log diverges there.
        """
        entries, segment = self._epochs.entries, segments.floor(start)
        # Without a segment, the tier has the record. A file of epochs that was rebuilt from the
        # batches lacks its epoch, so that proves nothing.
        if segment is None or not entries or entries[0].start_offset <= start:
            return start
        _, first = next(iter(headers(segment.file, 0, segment.size)), (0, None))
        # Records without a leader epoch predate leader epochs, so they were not deleted.
        is_deleted = first is not None and first.partition_leader_epoch >= 0
        return entries[0].start_offset if is_deleted else start

    def _topic_id(self, is_present: bool) -> bytes | None:
        """Return the topic id; read it from the file if that is present, or write it there."""
        known = self._opening.topic_id
        found = read_topic_id(self._disk, self._directory) if is_present else None
        if known is None:
            return found
        if found is None:
            write_topic_id(self._disk, self._directory, known)
        elif found != known:
            raise InconsistentTopicIdError(f"{self._directory} belongs to another topic id")
        return known

    # -- files -------------------------------------------------------------------------------

    def _list(self) -> list[str]:
        """Return the names of the files that belong to the log; create its directory if needed."""
        try:
            names = self._disk.list(self._directory)
        except FileNotFoundError:
            self._disk.make_directory(self._directory)
            return []
        return self._clean_up(names)

    def _clean_up(self, names: list[str]) -> list[str]:
        """Finish swaps, delete temporary and deleted files, and return the remaining names."""
        names = finish_swaps(self._disk, self._directory, names)
        kept = []
        bases = {offset_of(name, LOG_SUFFIX) for name in names}
        for name in names:
            if name.endswith((DELETED_FILE_SUFFIX, ".tmp")):
                self._disk.remove(f"{self._directory}/{name}")
                continue
            kept.append(name)
        return [name for name in kept if not self._is_orphan(name, bases)]

    def _is_orphan(self, name: str, bases: set[int | None]) -> bool:
        """Delete an index whose segment no longer exists; return whether it was deleted."""
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            offset = offset_of(name, suffix)
            if offset is not None and offset not in bases:
                self._disk.remove(f"{self._directory}/{name}")
                return True
        return False

    def _find_segments(self, names: list[str]) -> Generator[None, None, list[Segment]]:
        found = []
        present = set(names)
        # Modification times of the files of batches, in ns, by base offset.
        modified: dict[int, int] = {}
        for name in names:
            base = offset_of(name, LOG_SUFFIX)
            if base is not None:
                size, modified[base] = self._disk.stamp(f"{self._directory}/{name}")
                segment = Segment(self._disk, self._directory, base, self._config, size)
                segment.created_ms = self._dependencies.clock.wall_ms()
                if name.removesuffix(LOG_SUFFIX) + TXN_INDEX_SUFFIX not in present:
                    # So reads of aborted transactions do not look for the file.
                    segment.txn_index.create()
                found.append(segment)
                yield
        if LARGEST_TIMESTAMPS in present:
            # A missing index is rebuilt, which also finds the timestamp in the batches.
            indexed = (each for each in found if _name(each.path(TIME_INDEX_SUFFIX)) in present)
            self._times.load(indexed, modified)
        return found

    def _new_segment(self, base_offset: int, with_files: bool) -> Segment:
        segment = Segment(self._disk, self._directory, base_offset, self._config)
        jitter_ms = roll_jitter(self._config, self._dependencies.rng)
        segment.create(self._dependencies.clock.wall_ms(), jitter_ms, with_files)
        return segment

    def _start_empty(self, segments: list[Segment]) -> list[Segment]:
        """Delete all segments, because the whole log lies below its start; return a new segment."""
        self._times.drop(segments)
        for segment in segments:
            segment.close()
            segment.delete_files()
        self._producers.remove_all_snapshots()
        self._epochs.clear()
        self._is_replayed = False
        start = self._opening.log_start_offset
        # A log that never had a record needs no files. Creating them would take most of the time in
        # which thousands of partitions are created.
        self._is_whole = not segments and start == 0
        return [self._new_segment(start, with_files=not self._is_whole)]

    # -- indexes -----------------------------------------------------------------------------

    def _repair_indexes(self, segments: list[Segment], present: set[str]) -> None:
        """Rebuild indexes that are not among the names. Damaged indexes are found on first use."""
        for segment in segments:
            files = (segment.path(INDEX_SUFFIX), segment.path(TIME_INDEX_SUFFIX))
            if any(_name(path) not in present for path in files):
                segment.rebuild_indexes()
                segment.sync_all()()

    def _damaged_transactions(
        self, segments: list[Segment], end: int, present: set[str]
    ) -> Generator[None, None, int | None]:
        """Return the base offset of the first segment with a damaged transaction index, or None."""
        ends = [segment.base_offset for segment in segments[1:]] + [end]
        for segment, segment_end in zip(segments, ends, strict=True):
            path = segment.path(TXN_INDEX_SUFFIX)
            if _name(path) not in present:
                continue
            if not segment.txn_index.is_sane(segment.base_offset, segment_end):
                action = "rebuilt from the batches; no action is needed"
                problem = "its entries do not fit the segment"
                self._dependencies.damage.report(DamageKind.TRANSACTIONS, path, problem, action)
                return segment.base_offset
            yield
        return None

    # -- recovery ----------------------------------------------------------------------------

    def _recover(
        self, segments: list[Segment], present: set[str], recover_from: int | None = None
    ) -> Generator[None, None, int]:
        """Check every segment above the recovery point; the first invalid batch ends the log.

        Segments below it are complete, with their indexes (`LogSync.safe_recovery_point`).

        Args:
            present: names of the files in the directory.
            recover_from: base offset of an earlier segment at which to begin.

        Returns:
            The log end offset.
        """
        point = self._opening.recovery_point
        if recover_from is not None:
            point = min(point, recover_from)
        self._is_whole = False
        first = max(0, sum(segment.base_offset <= point for segment in segments) - 1)
        while first and overlaps(segments[first - 1], segments[first]):
            first -= 1
        self._repair_indexes(segments[:first], present)
        self._times.drop(segments[first:])
        base = segments[first].base_offset
        start = max(self._opening.log_start_offset, segments[0].base_offset)
        self.load_producer_state(
            self._producers,
            Segments(segments[: first + 1], self._times),
            range(min(start, base), base),
            self._dependencies.expiry_clock.wall_ms(),
        )
        self._is_replayed = True
        end = base
        if first and not self._epochs_are_whole:
            # Recovery adds epochs to the file. A file with those of later segments only, which a
            # crash may leave, would raise the log start at the next start.
            self._epochs.replace(_epochs_in(segments[:first]))
        self._order = BatchOrder(self._epochs.entries, may_skip=self._config.is_compacted)
        for index in range(first, len(segments)):
            if segments[index].base_offset > end and not self._config.is_compacted:
                # The segment between them is missing: a power loss restored directory entries.
                self._report_gap(segments[index], end)
                self._delete_from(segments, index)
                break
            self._producers.map_end_offset = segments[index].base_offset
            self._producers.take_snapshot()
            following = segments[index + 1].base_offset if index + 1 < len(segments) else LONG_MAX
            end, is_whole = yield from self._recover_segment(segments[index], following)
            if not is_whole:
                self._delete_from(segments, index + 1)
                break
        self._producers.map_end_offset = end
        return end

    def _report_gap(self, segment: Segment, end: int) -> None:
        self._has_truncated = True
        problem = f"offsets {end} to {segment.base_offset - 1} are missing before it"
        action = (
            f"deleted with all later segments; the log ends at offset {end}; only other replicas "
            f"have the later records"
        )
        self._dependencies.damage.report(DamageKind.GAP, segment.path(LOG_SUFFIX), problem, action)

    def _delete_from(self, segments: list[Segment], first: int) -> None:
        """Delete the segments from `first` on, and sync, so that they cannot reappear."""
        for segment in segments[first:]:
            _log.warning(
                "Deleted a segment after damaged records: directory=%s base_offset=%d bytes=%d",
                self._directory,
                segment.base_offset,
                segment.size,
            )
            segment.close()
            segment.delete_files()
        del segments[first:]
        self._disk.sync_directory(self._directory)

    def _recover_segment(
        self, segment: Segment, following: int
    ) -> Generator[None, None, tuple[int, bool]]:
        """Rebuild indexes, epochs and aborted transactions; truncate at the first invalid batch.

        Args:
            following: base offset of the next segment, LONG_MAX without one. Batches that reach
                beyond it were truncated earlier, so they are removed.

        Returns:
            The end offset, and whether the segment is intact.
        """
        segment.clear_indexes()
        order = self._order
        order.begin_segment(segment.base_offset)
        position, problem = 0, None
        pause_at = _SLICE_BYTES
        walk = valid_batches(segment.file, 0, segment.size)
        ahead = next(walk, None)
        while ahead is not None:
            at, header, batch = ahead
            ahead = next(walk, None)
            problem = order.problem(header, None if ahead is None else ahead[1], following)
            if problem is not None:
                break
            if header.next_offset > following:
                segment.seal()
                segment.truncate_file(position)
                return order.next_offset, True
            try:
                completed = self._producers.replay(batch, header)
            except StorageError as error:
                # As in Kafka, an unreadable marker ends the log like a wrong CRC.
                problem = str(error)
                break
            order.take(header)
            segment.index_batch(at, header)
            if header.partition_leader_epoch >= 0:
                self._record_epoch(header)
            _index_aborted(segment, self._producers, completed)
            position = at + header.size
            if position >= pause_at:
                pause_at = position + _SLICE_BYTES
                yield
        segment.seal()
        if position == segment.size:
            segment.close()
            return order.next_offset, True
        self._truncate_segment(segment, position, problem, is_last=following == LONG_MAX)
        return order.next_offset, False

    def _truncate_segment(
        self, segment: Segment, position: int, problem: str | None, *, is_last: bool
    ) -> None:
        """Truncate a segment at the first batch that is not part of the log, and report it.

        Args:
            problem: the problem of an intact batch; None if its bytes are damaged.
            is_last: whether the segment is the last one, whose end a crash may have torn.
        """
        path, end = segment.path(LOG_SUFFIX), self._order.next_offset
        lost = segment.size - position
        is_torn = False
        if problem is None:
            problem, is_torn = describe_end(segment.file, position, segment.size)
        known_end = max(self._opening.recovery_point, self._opening.high_watermark)
        if is_torn and is_last and end >= known_end:
            _log.warning(
                "Truncated an unfinished append: path=%s position=%d bytes=%d log_end_offset=%d "
                "problem=%s",
                path,
                position,
                lost,
                end,
                problem,
            )
        else:
            self._has_truncated = True
            action = (
                f"truncated, with the {lost} bytes up to the end of the segment; the log ends at "
                f"offset {end}; only other replicas have the later records"
            )
            self._dependencies.damage.report(DamageKind.BATCH, path, problem, action, position)
        segment.truncate_file(position)
        # A power loss must not restore removed, intact batches after newer ones.
        segment.sync_batches()()

    def _record_epoch(self, header: BatchHeader) -> None:
        latest = self._epochs.latest_epoch
        if latest is None or header.partition_leader_epoch > latest:
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)

    @staticmethod
    def load_producer_state(
        state: ProducerState, segments: Segments, span: range, now_ms: int
    ) -> None:
        """Load the producer state at the log end, from the latest snapshot and later batches.

        Args:
            span: log start offset and log end offset.
        """
        end = span.stop
        position = state.load_latest_snapshot(span.start, end, now_ms)
        if position < end:
            for segment in segments.from_offset(position):
                first = segment.position_of(position) if segment.size else 0
                for _, header, batch in valid_batches(segment.file, first, segment.size):
                    if header.base_offset >= position:
                        _replay_or_skip(state, batch, header)
        state.map_end_offset = end


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _replay_or_skip(state: ProducerState, batch: memoryview, header: BatchHeader) -> None:
    """Replay one batch into the state; skip it if it is invalid.

    The batch stays in the log, because this log was not recovered.
    """
    try:
        state.replay(batch, header)
    except StorageError as error:
        _log.error("Skipped an invalid batch while loading the producer state: error=%s", error)


def _index_aborted(segment: Segment, state: ProducerState, completed: CompletedTxn | None) -> None:
    if completed is not None and completed.is_aborted:
        segment.txn_index.append(state.aborted_entry(completed))


def _epochs_in(segments: Iterable[Segment]) -> list[EpochEntry]:
    """Return each leader epoch and its first offset, from the batches."""
    found: dict[int, int] = {}
    for segment in segments:
        try:
            for _, header in headers(segment.file, 0, segment.size):
                if header.partition_leader_epoch >= 0:
                    found.setdefault(header.partition_leader_epoch, header.base_offset)
        except DamagedLogError:
            # Readers get an error for the damage; later segments have the later epochs.
            continue
    return [EpochEntry(*pair) for pair in found.items()]
