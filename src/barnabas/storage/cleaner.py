"""Compacting the logs of a broker (Kafka's LogCleaner; KIP-58, KIP-354, KIP-534).

The log with the largest dirty part is compacted first; the work leaves the loop through
`runtime.offload`, and what it has written is put in place here, a group of segments at a time.
Logs that are compacted have their old segments deleted here too, between two passes. Whatever cuts,
moves or deletes a log calls its cleaning off before.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.runtime.offload import OffloadError, OffloadTask, SlicedOffload
from barnabas.settings.key import ConfigError
from barnabas.storage.cleaner_checkpoints import CleanerCheckpoints
from barnabas.storage.cleaner_job import (
    CleanedSegment,
    CleaningJob,
    CleaningStats,
    LastRecord,
    MapBuilt,
    SourceSegment,
)
from barnabas.storage.cleaner_offset_map import capacity_for
from barnabas.storage.cleaner_selection import LogToClean, cleanable_offsets, log_to_clean
from barnabas.storage.cleaner_work import clean
from barnabas.storage.config import cleaner_config
from barnabas.storage.errors import KafkaStorageError, StorageError
from barnabas.storage.file_names import CLEANED_FILE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.runtime.offload import Offload
    from barnabas.runtime.timer import Cancellable
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.config import CleanerConfig
    from barnabas.storage.doors import LogDoors
    from barnabas.storage.log import Log
    from barnabas.storage.log_directory import LogDirectory
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

# Logs looked at per turn of the loop.
_SLICE = 32
# Reading and writing share the io buffer, and a batch rarely fills a smaller one.
_BUFFERS = 2
_BUFFER_BYTES_MIN = 4096


class CleanableLogs(Protocol):
    """The logs, as far as the cleaner knows them."""

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        """Every log that is open."""
        ...

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """The data directory in which a partition's log lies."""
        ...


class Pass(msgspec.Struct):
    """A log that is being compacted."""

    partition: TopicPartition
    log: Log
    to_clean: LogToClean
    # Of the log, when it began.
    cut_count: int
    started_ms: float = 0.0
    work: Cancellable | None = None
    # Told by the work.
    built: MapBuilt | None = None
    stats: CleaningStats | None = None


class CleanerStatistics(msgspec.Struct):
    """What was done so far."""

    passes: int = 0
    segments_replaced: int = 0
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    # Of the last scan: Kafka's max-dirty-percent, as a part of 1, and max-compaction-delay.
    dirty_ratio_max: float = 0.0
    compaction_delay_ms_max: int = 0
    # When that began, of the monotonic clock.
    last_run_ms: float = 0.0
    # Of the last pass: how full the map was, which part of what it read was kept, how long it took.
    map_utilization: float = 0.0
    kept_ratio: float = 0.0
    duration_ms: float = 0.0


class LogCleaner:
    """Begins with `start`; until then, and after `stop`, nothing is compacted."""

    def __init__(self, logs: CleanableLogs, config: CleanerConfig, doors: LogDoors) -> None:
        self._logs = logs
        self._config = config
        self._doors = doors
        self._offload: Offload = doors.offload or SlicedOffload(
            doors.disk, doors.clock, doors.timer
        )
        self.checkpoints = CleanerCheckpoints(doors.executor, doors.on_disk_failure)
        self.statistics = CleanerStatistics()
        # Logs that are being compacted.
        self._passes: dict[TopicPartition, Pass] = {}
        # How many want a partition left alone.
        self._paused: dict[TopicPartition, int] = {}
        # Logs whose compaction failed: not tried again before the next start.
        self.uncleanable: set[TopicPartition] = set()
        self._is_running = False
        self._is_scanning = False
        self._timer: Cancellable | None = None

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for work, now and ever again."""
        self._is_running = True
        self._schedule(0)

    def stop(self) -> None:
        """Call everything off; what was half made is removed."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        for partition in list(self._passes):
            self.abort_cleaning(partition)

    def take_broker_config(self, broker: ParsedConfig) -> None:
        """The broker's configuration has changed; it holds from the next pass on."""
        try:
            self._config = cleaner_config(broker)
        except ConfigError as error:
            _log.error("The old configuration of the log cleaner holds: %s", error)
            return
        if self._is_running and not self._is_scanning:
            self._schedule(0)

    @property
    def in_progress(self) -> list[TopicPartition]:
        """The logs that are being compacted."""
        return list(self._passes)

    @property
    def idle_ms(self) -> float:
        """How long ago it looked for work."""
        return self._doors.clock.monotonic_ms() - self.statistics.last_run_ms

    def uncleanable_in(self, directory: LogDirectory) -> list[int]:
        """Bytes that were never compacted, of each log of a directory whose compaction failed."""
        found = []
        now_ms = self._doors.expiry_clock.wall_ms()
        for partition in self.uncleanable:
            log = self._logs.logs.get(partition)
            if log is not None and self._logs.directory_of(partition) is directory:
                last_clean = self.checkpoints.get(directory, partition)
                offsets = cleanable_offsets(log, last_clean, now_ms)
                found.append(log_to_clean(log, offsets, now_ms).cleanable_bytes)
        return found

    # -- what others do to a log -------------------------------------------------------------

    def abort_cleaning(self, partition: TopicPartition) -> None:
        """Call the cleaning of a log off, if it is under way; returns when nothing runs any more.

        Segments that were put in place already stay.
        """
        cleaning = self._passes.pop(partition, None)
        if cleaning is None:
            return
        if cleaning.work is not None:
            cleaning.work.cancel()
        self._remove_half_made(cleaning.log)
        self._look_again()

    def abort_and_pause_cleaning(self, partition: TopicPartition) -> None:
        """Call it off, and leave the log alone until `resume_cleaning`; calls are counted."""
        self._paused[partition] = self._paused.get(partition, 0) + 1
        self.abort_cleaning(partition)

    def resume_cleaning(self, partition: TopicPartition) -> None:
        """Undo one `abort_and_pause_cleaning`."""
        count = self._paused.pop(partition) - 1
        if count:
            self._paused[partition] = count

    def before_cut(self, partition: TopicPartition, offset: int) -> None:
        """A log is going to be cut at `offset`; within the active segment that disturbs nobody."""
        log = self._logs.logs.get(partition)
        if log is not None and offset < log.segments.active.base_offset:
            self.abort_cleaning(partition)

    def on_cut(self, partition: TopicPartition) -> None:
        """A log was cut: what comes anew was never compacted."""
        directory, log = self._logs.directory_of(partition), self._logs.logs.get(partition)
        if directory is not None and log is not None:
            self.checkpoints.lower(directory, partition, log.segments.active.base_offset)

    def on_gone(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """A log was deleted, or its directory is offline."""
        self.abort_cleaning(partition)
        self.uncleanable.discard(partition)
        if directory.is_online:
            self.checkpoints.remove(directory, partition)

    # -- looking for work --------------------------------------------------------------------

    def _schedule(self, delay_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._doors.timer.call_later(delay_ms, self._scan)

    def _scan(self) -> None:
        """Look at all logs, a few per turn; begin with the dirtiest, if any is worth it."""
        self._is_scanning = True
        self.statistics.last_run_ms = self._doors.clock.monotonic_ms()
        self.statistics.dirty_ratio_max = 0.0
        self.statistics.compaction_delay_ms_max = 0
        waiting = [tp for tp, log in self._logs.logs.items() if log.config.is_compacted]
        found: list[Pass] = []

        def look() -> None:
            if not self._is_running:
                return
            for partition in waiting[:_SLICE]:
                found.extend(self._look_at(partition))
            del waiting[:_SLICE]
            if waiting:
                self._doors.timer.call_soon(look)
            else:
                self._is_scanning = False
                self._begin_with(found)

        look()

    def _look_at(self, partition: TopicPartition) -> Iterator[Pass]:
        """The log, if it may be compacted and is worth it; its old segments are deleted."""
        log, directory = self._logs.logs.get(partition), self._logs.directory_of(partition)
        if log is None or directory is None or not self._is_free(partition):
            return
        try:
            now_ms = self._doors.expiry_clock.wall_ms()
            log.delete_old_segments(now_ms)
            if len(log.segments) == 1:
                return
            last_clean = self.checkpoints.get(directory, partition)
            offsets = cleanable_offsets(log, last_clean, now_ms)
            if offsets.is_reset and last_clean is not None:
                self.checkpoints.put(directory, partition, offsets.first_dirty_offset)
            to_clean = log_to_clean(log, offsets, now_ms)
        except KafkaStorageError:
            # Its directory went offline, which was told already.
            return
        except (StorageError, OSError) as error:
            if is_out_of_descriptors(error):
                # Looked at again after the back-off.
                self._doors.on_descriptor_shortage()
                return
            self._mark_uncleanable(partition, error)
            return
        statistics = self.statistics
        statistics.dirty_ratio_max = max(statistics.dirty_ratio_max, to_clean.cleanable_ratio)
        statistics.compaction_delay_ms_max = max(
            statistics.compaction_delay_ms_max, to_clean.compaction_delay_ms
        )
        if to_clean.total_bytes and to_clean.is_worth_it(log.config):
            yield Pass(partition, log, to_clean, log.cut_count)

    def _is_free(self, partition: TopicPartition) -> bool:
        return not (
            partition in self._passes or partition in self._paused or partition in self.uncleanable
        )

    def _begin_with(self, found: list[Pass]) -> None:
        """Begin with the dirtiest ones, as many as may run; else look again after the back-off."""
        room = self._config.log_cleaner_threads - len(self._passes)
        found.sort(key=lambda each: each.to_clean.cleanable_ratio, reverse=True)
        for cleaning in found[: max(0, room)]:
            log = self._logs.logs.get(cleaning.partition)
            if log is cleaning.log and self._is_free(cleaning.partition):
                self._begin(cleaning)
        self._schedule(self._config.log_cleaner_backoff_ms)

    # -- one pass ----------------------------------------------------------------------------

    def _begin(self, cleaning: Pass) -> None:
        config, log = self._config, cleaning.log
        try:
            job = self._job(cleaning)
        except (KafkaStorageError, OSError):
            return
        cleaning.started_ms = self._doors.clock.monotonic_ms()
        self._passes[cleaning.partition] = cleaning
        rate = config.log_cleaner_io_max_bytes_per_second / config.log_cleaner_threads
        task = OffloadTask(clean, job, max(1.0, rate))
        _log.debug("Compacting %s: %s", log.topic_partition, cleaning.to_clean)
        cleaning.work = self._offload.submit(
            task,
            lambda told: self._on_told(cleaning, told),
            lambda error: self._on_done(cleaning, error),
        )

    def _job(self, cleaning: Pass) -> CleaningJob:
        config, log, to_clean = self._config, cleaning.log, cleaning.to_clean
        threads = config.log_cleaner_threads
        uncleanable = to_clean.first_uncleanable_offset
        memory = config.log_cleaner_dedupe_buffer_size // threads
        buffer_bytes = config.log_cleaner_io_buffer_size // threads // _BUFFERS
        return CleaningJob(
            directory=log.directory,
            config=log.config,
            sources=_sources(log, uncleanable),
            first_dirty_offset=to_clean.first_dirty_offset,
            first_uncleanable_offset=uncleanable,
            aborted=tuple(log.aborted_transactions_below(uncleanable)),
            active_producers={
                producer_id: LastRecord(entry.last_offset, entry.producer_epoch)
                for producer_id, entry in log.producer_state.entries.items()
            },
            now_ms=self._doors.expiry_clock.wall_ms(),
            map_capacity=capacity_for(memory, config.log_cleaner_io_buffer_load_factor),
            buffer_bytes=max(_BUFFER_BYTES_MIN, buffer_bytes),
        )

    def _on_told(self, cleaning: Pass, told: object) -> None:
        match told:
            case MapBuilt():
                cleaning.built = told
            case CleanedSegment():
                self._put_in_place(cleaning, told)
            case CleaningStats():
                cleaning.stats = told
            case _:
                raise AssertionError(f"unknown message {told!r}")

    def _put_in_place(self, cleaning: Pass, cleaned: CleanedSegment) -> None:
        log = cleaning.log
        try:
            is_done = log.cut_count == cleaning.cut_count and log.replace_segments(*cleaned)
        except KafkaStorageError:
            self.abort_cleaning(cleaning.partition)
            return
        if not is_done:
            # The log has changed under the work, and what was written is of no use.
            _log.warning("Compaction of %s is given up: the log has changed", cleaning.partition)
            self.abort_cleaning(cleaning.partition)
            return
        self.statistics.segments_replaced += len(cleaned.replaced)

    def _on_done(self, cleaning: Pass, error: BaseException | None) -> None:
        if error is not None:
            self._on_failed(cleaning, error)
            return
        cleaning.work = None
        self._on_written(cleaning)

    def _on_written(self, cleaning: Pass) -> None:
        """All segments are in place, but for the names of their files perhaps."""
        if self._passes.get(cleaning.partition) is not cleaning:
            # Called off meanwhile.
            return
        if cleaning.log.is_swapping:
            self._doors.timer.call_soon(lambda: self._on_written(cleaning))
            return
        built, stats = cleaning.built, cleaning.stats
        assert built is not None
        assert stats is not None
        self._count(built, stats, cleaning.started_ms)
        # The new names must be as durable as the checkpoint that tells of them.
        disk, directory = self._doors.disk, cleaning.log.directory
        self._doors.executor.submit(
            lambda: disk.sync_directory(directory),
            lambda _, error: self._on_synced(cleaning, built.end_offset, error),
        )

    def _on_synced(self, cleaning: Pass, end_offset: int, error: BaseException | None) -> None:
        if self._passes.get(cleaning.partition) is not cleaning:
            # Called off meanwhile.
            return
        if error is not None:
            self._on_failed(cleaning, error)
            return
        del self._passes[cleaning.partition]
        directory = self._logs.directory_of(cleaning.partition)
        if directory is not None:
            in_directory = [
                tp for tp in self._logs.logs if self._logs.directory_of(tp) is directory
            ]
            self.checkpoints.forget_all_but(directory, in_directory)
            self.checkpoints.put(directory, cleaning.partition, end_offset)
        self._look_again()

    def _look_again(self) -> None:
        """Without a pause: as long as there is work, there is no back-off."""
        if self._is_running and not self._is_scanning:
            self._schedule(0)

    def _on_failed(self, cleaning: Pass, error: BaseException) -> None:
        self._passes.pop(cleaning.partition, None)
        directory = self._logs.directory_of(cleaning.partition)
        is_short = is_out_of_descriptors(error)
        if isinstance(error, OSError) and directory is not None and not is_short:
            self._doors.on_disk_failure(directory.path, error)
            return
        self._remove_half_made(cleaning.log)
        if isinstance(error, OffloadError) or is_short:
            # Nothing is wrong with the log: tried again after the back-off.
            _log.warning("Compaction of %s was interrupted: %s", cleaning.partition, error)
            return
        self._mark_uncleanable(cleaning.partition, error)
        self._look_again()

    def _mark_uncleanable(self, partition: TopicPartition, error: BaseException) -> None:
        _log.warning("Compaction of %s has failed, it is left as it is: %s", partition, error)
        self.uncleanable.add(partition)

    def _remove_half_made(self, log: Log) -> None:
        disk, directory = self._doors.disk, log.directory
        try:
            if not disk.exists(directory):
                return
            for name in disk.list(directory):
                if name.endswith(CLEANED_FILE_SUFFIX):
                    disk.remove(f"{directory}/{name}")
        except OSError as error:
            # They are removed when the log is opened again, too.
            _log.warning("Files of a compaction stay behind in %s: %s", directory, error)

    def _count(self, built: MapBuilt, stats: CleaningStats, started_ms: float) -> None:
        before = self.statistics
        self.statistics = replace(
            before,
            passes=before.passes + 1,
            records_read=before.records_read + stats.records_read,
            records_kept=before.records_kept + stats.records_kept,
            bytes_read=before.bytes_read + stats.bytes_read,
            bytes_kept=before.bytes_kept + stats.bytes_kept,
            map_utilization=built.utilization,
            kept_ratio=stats.bytes_kept / stats.bytes_read if stats.bytes_read else 0.0,
            duration_ms=self._doors.clock.monotonic_ms() - started_ms,
        )


def _sources(log: Log, end_offset: int) -> tuple[SourceSegment, ...]:
    """The segments below `end_offset`."""
    segments = [segment for segment in log.segments if segment.base_offset < end_offset]
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    return tuple(
        SourceSegment(segment.base_offset, segment.size, end)
        for segment, end in zip(segments, ends, strict=True)
    )
