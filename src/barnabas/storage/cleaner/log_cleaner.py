"""Compaction of the logs of a broker (Kafka's LogCleaner; KIP-58, KIP-354, KIP-534).

The log with the highest dirty ratio is compacted first. The work runs off the loop through
`runtime.offload`; the cleaner swaps the written segments in, a group of segments at a time. It also
deletes old segments of compacted logs between two passes. Code that truncates, moves or deletes a
log first aborts its cleaning.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.runtime.offload import OffloadError, SlicedOffload
from barnabas.runtime.offload_task import OffloadTask
from barnabas.settings.key import ConfigError
from barnabas.storage.cleaner.cleaner_filter import (
    CleanedSegment,
    CleaningJob,
    CleaningStats,
    LastRecord,
    MapBuilt,
    SourceSegment,
    capacity_for,
)
from barnabas.storage.cleaner.cleaner_selection import (
    CleanerCheckpoints,
    LogToClean,
    cleanable_offsets,
    log_to_clean,
)
from barnabas.storage.cleaner.cleaner_work import clean
from barnabas.storage.config import cleaner_config
from barnabas.storage.errors import KafkaStorageError, StorageError
from barnabas.storage.topic_partition import CLEANED_FILE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.offload import Offload
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.config import CleanerConfig
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log.log import Log
    from barnabas.storage.log_dependencies import LogDependencies
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

# Logs examined per turn of the loop.
_SLICE = 32
# Reading and writing share the I/O buffer; below the minimum, few batches would fit.
_BUFFERS = 2
_BUFFER_BYTES_MIN = 4096


class CleanableLogs(Protocol):
    """The part of LogManager that the cleaner uses."""

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """Every log that is open."""
        ...

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the data directory of a partition's log."""
        ...


class Pass(msgspec.Struct):
    """One compaction of one log."""

    partition: TopicPartition
    log: Log
    to_clean: LogToClean
    # `Log.truncation_count` at the start of the pass.
    truncation_count: int
    started_ms: float = 0.0
    work: Cancellable | None = None
    # Reported by the offloaded task.
    built: MapBuilt | None = None
    stats: CleaningStats | None = None


class CleanerStatistics(msgspec.Struct):
    """Totals since startup, and values of the last scan and the last pass."""

    passes: int = 0
    segments_replaced: int = 0
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    # Of the last scan: Kafka's max-dirty-percent as a fraction, and max-compaction-delay.
    dirty_ratio_max: float = 0.0
    compaction_delay_ms_max: int = 0
    # Start of the last scan (monotonic clock).
    last_run_ms: float = 0.0
    # Of the last pass: fill ratio of the offset map, fraction of bytes kept, and duration.
    map_utilization: float = 0.0
    kept_ratio: float = 0.0
    duration_ms: float = 0.0


class LogCleaner:
    """Compacts logs between `start` and `stop`."""

    def __init__(
        self, logs: CleanableLogs, config: CleanerConfig, dependencies: LogDependencies
    ) -> None:
        self._logs = logs
        self._config = config
        self._dependencies = dependencies
        self._offload: Offload = dependencies.offload or SlicedOffload(
            dependencies.disk, dependencies.clock, dependencies.timer
        )
        self.checkpoints = CleanerCheckpoints(dependencies.executor, dependencies.on_disk_failure)
        self.statistics = CleanerStatistics()
        # Logs being compacted.
        self._passes: dict[TopicPartition, Pass] = {}
        # Number of pause requests per partition.
        self._paused: dict[TopicPartition, int] = {}
        # Logs whose compaction failed; they are not retried before the next restart.
        self.uncleanable: set[TopicPartition] = set()
        self._is_running = False
        self._is_scanning = False
        self._timer: Cancellable | None = None

    # -- lifecycle ---------------------------------------------------------------------------

    def start(self) -> None:
        """Scan for logs to compact, now and regularly."""
        self._is_running = True
        self._schedule(0)

    def stop(self) -> None:
        """Abort all cleaning and remove unfinished files."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        for partition in list(self._passes):
            self.abort_cleaning(partition)

    def apply_broker_config(self, broker: ParsedConfig) -> None:
        """Apply the broker's changed configuration from the next pass on."""
        try:
            self._config = cleaner_config(broker)
        except ConfigError as error:
            _log.error(
                "Rejected the log cleaner's new configuration, kept the old one: error=%s", error
            )
            return
        if self._is_running and not self._is_scanning:
            self._schedule(0)

    @property
    def in_progress(self) -> list[TopicPartition]:
        """Partitions whose logs are being compacted."""
        return list(self._passes)

    @property
    def idle_ms(self) -> float:
        """Time since the last scan began, in ms."""
        return self._dependencies.clock.monotonic_ms() - self.statistics.last_run_ms

    def uncleanable_in(self, directory: LogDirectory) -> list[int]:
        """Return the uncompacted bytes of each uncleanable log in the directory."""
        found = []
        now_ms = self._dependencies.expiry_clock.wall_ms()
        for partition in self.uncleanable:
            log = self._logs.logs.get(partition)
            if log is not None and self._logs.directory_of(partition) is directory:
                last_clean = self.checkpoints.get(directory, partition)
                offsets = cleanable_offsets(log, last_clean, now_ms)
                found.append(log_to_clean(log, offsets, now_ms).cleanable_bytes)
        return found

    # -- aborting and pausing ----------------------------------------------------------------

    def abort_cleaning(self, partition: TopicPartition) -> None:
        """Abort the cleaning of a log, if it runs; on return, its task has stopped.

        Segments that were already swapped in stay.
        """
        cleaning = self._passes.pop(partition, None)
        if cleaning is None:
            return
        if cleaning.work is not None:
            cleaning.work.cancel()
        self._remove_unfinished(cleaning.log)
        self._check_again()

    def abort_and_pause_cleaning(self, partition: TopicPartition) -> None:
        """Abort cleaning, and prevent it until `resume_cleaning`; pause requests are counted."""
        self._paused[partition] = self._paused.get(partition, 0) + 1
        self.abort_cleaning(partition)

    def resume_cleaning(self, partition: TopicPartition) -> None:
        """Release one pause of `abort_and_pause_cleaning`."""
        count = self._paused.pop(partition) - 1
        if count:
            self._paused[partition] = count

    def before_truncation(self, partition: TopicPartition, offset: int) -> None:
        """Abort the cleaning of a log that will be truncated below its active segment.

        Cleaning never reads the active segment, so truncation there does not disturb it.
        """
        log = self._logs.logs.get(partition)
        if log is not None and offset < log.segments.active.base_offset:
            self.abort_cleaning(partition)

    def on_truncated(self, partition: TopicPartition) -> None:
        """Lower the cleaner checkpoint after a truncation: new records were never compacted."""
        directory, log = self._logs.directory_of(partition), self._logs.logs.get(partition)
        if directory is not None and log is not None:
            self.checkpoints.lower(directory, partition, log.segments.active.base_offset)

    def on_deleted(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """Forget a log that was deleted or whose directory is offline."""
        self.abort_cleaning(partition)
        self.uncleanable.discard(partition)
        if directory.is_online:
            self.checkpoints.remove(directory, partition)

    # -- scanning for work -------------------------------------------------------------------

    def _schedule(self, delay_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._dependencies.timer.call_later(delay_ms, self._scan)

    def _scan(self) -> None:
        """Examine all logs, a few per turn, then start with those of the highest dirty ratio."""
        self._is_scanning = True
        self.statistics.last_run_ms = self._dependencies.clock.monotonic_ms()
        self.statistics.dirty_ratio_max = 0.0
        self.statistics.compaction_delay_ms_max = 0
        waiting = deque(tp for tp, log in self._logs.logs.items() if log.config.is_compacted)
        found: list[Pass] = []

        def examine_slice() -> None:
            if not self._is_running:
                return
            try:
                for _ in range(min(_SLICE, len(waiting))):
                    found.extend(self._check_log(waiting.popleft()))
            finally:
                # After an exception, the scan continues with the next log.
                if waiting:
                    self._dependencies.timer.call_soon(examine_slice)
                else:
                    self._is_scanning = False
                    self._begin_with(found)

        examine_slice()

    def _check_log(self, partition: TopicPartition) -> Iterator[Pass]:
        """Yield a pass if the log can and should be compacted; also delete its old segments."""
        log, directory = self._logs.logs.get(partition), self._logs.directory_of(partition)
        if log is None or directory is None or not self._is_free(partition):
            return
        try:
            now_ms = self._dependencies.expiry_clock.wall_ms()
            log.delete_old_segments(now_ms)
            if len(log.segments) == 1:
                return
            last_clean = self.checkpoints.get(directory, partition)
            offsets = cleanable_offsets(log, last_clean, now_ms)
            if offsets.is_reset and last_clean is not None:
                self.checkpoints.put(directory, partition, offsets.first_dirty_offset)
            to_clean = log_to_clean(log, offsets, now_ms)
        except KafkaStorageError:
            # The failure of the directory has already been reported.
            return
        except (StorageError, OSError) as error:
            if is_out_of_descriptors(error):
                # The log is examined again after the backoff.
                self._dependencies.on_descriptor_shortage()
                return
            self._mark_uncleanable(partition, error)
            return
        statistics = self.statistics
        statistics.dirty_ratio_max = max(statistics.dirty_ratio_max, to_clean.cleanable_ratio)
        statistics.compaction_delay_ms_max = max(
            statistics.compaction_delay_ms_max, to_clean.compaction_delay_ms
        )
        if to_clean.total_bytes and to_clean.is_worth_it(log.config):
            yield Pass(partition, log, to_clean, log.sync.truncation_count)

    def _is_free(self, partition: TopicPartition) -> bool:
        return not (
            partition in self._passes or partition in self._paused or partition in self.uncleanable
        )

    def _begin_with(self, found: list[Pass]) -> None:
        """Start passes with the highest dirty ratio, up to the limit; schedule the next scan."""
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
        cleaning.started_ms = self._dependencies.clock.monotonic_ms()
        self._passes[cleaning.partition] = cleaning
        rate = config.log_cleaner_io_max_bytes_per_second / config.log_cleaner_threads
        task = OffloadTask(clean, job, max(1.0, rate))
        _log.debug("Compaction started: partition=%s %s", log.topic_partition, cleaning.to_clean)
        cleaning.work = self._offload.submit(
            task,
            lambda result: self._on_result(cleaning, result),
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
            aborted=tuple(log.reader.aborted_transactions_below(uncleanable)),
            active_producers={
                producer_id: LastRecord(entry.last_offset, entry.producer_epoch)
                for producer_id, entry in log.producer_state.entries.items()
            },
            now_ms=self._dependencies.expiry_clock.wall_ms(),
            map_capacity=capacity_for(memory, config.log_cleaner_io_buffer_load_factor),
            buffer_bytes=max(_BUFFER_BYTES_MIN, buffer_bytes),
        )

    def _on_result(self, cleaning: Pass, result: object) -> None:
        match result:
            case MapBuilt():
                cleaning.built = result
            case CleanedSegment():
                self._swap_in(cleaning, result)
            case CleaningStats():
                cleaning.stats = result
            case _:
                raise AssertionError(f"unknown message {result!r}")

    def _swap_in(self, cleaning: Pass, cleaned: CleanedSegment) -> None:
        log = cleaning.log
        try:
            is_done = (
                log.sync.truncation_count == cleaning.truncation_count
                and log.replace_segments(*cleaned)
            )
        except KafkaStorageError:
            self.abort_cleaning(cleaning.partition)
            return
        if not is_done:
            # The log has changed during the pass, so the written segments are invalid.
            _log.warning(
                "Compaction aborted, the log has changed: partition=%s", cleaning.partition
            )
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
        """Finish a pass after all segments are swapped in and their files are renamed."""
        if self._passes.get(cleaning.partition) is not cleaning:
            # The pass was aborted.
            return
        if cleaning.log.is_swapping:
            self._dependencies.timer.call_soon(lambda: self._on_written(cleaning))
            return
        built, stats = cleaning.built, cleaning.stats
        assert built is not None
        assert stats is not None
        self._count(built, stats, cleaning.started_ms)
        # The new names must be as durable as the checkpoint that depends on them.
        disk, directory = self._dependencies.disk, cleaning.log.directory
        self._dependencies.executor.submit(
            lambda: disk.sync_directory(directory),
            lambda _, error: self._on_synced(cleaning, built.end_offset, error),
        )

    def _on_synced(self, cleaning: Pass, end_offset: int, error: BaseException | None) -> None:
        if self._passes.get(cleaning.partition) is not cleaning:
            # The pass was aborted.
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
        self._check_again()

    def _check_again(self) -> None:
        """Scan again without backoff, as long as there is work."""
        if self._is_running and not self._is_scanning:
            self._schedule(0)

    def _on_failed(self, cleaning: Pass, error: BaseException) -> None:
        self._passes.pop(cleaning.partition, None)
        directory = self._logs.directory_of(cleaning.partition)
        is_short = is_out_of_descriptors(error)
        if isinstance(error, OSError) and directory is not None and not is_short:
            self._dependencies.on_disk_failure(directory.path, error)
            return
        self._remove_unfinished(cleaning.log)
        if isinstance(error, OffloadError) or is_short:
            # The log itself is intact, so it is retried after the backoff.
            _log.warning(
                "Compaction interrupted, to be retried: partition=%s error=%s",
                cleaning.partition,
                error,
            )
            return
        self._mark_uncleanable(cleaning.partition, error)
        self._check_again()

    def _mark_uncleanable(self, partition: TopicPartition, error: BaseException) -> None:
        _log.warning(
            "Compaction failed, the log is not compacted again: partition=%s error=%s",
            partition,
            error,
        )
        self.uncleanable.add(partition)

    def _remove_unfinished(self, log: Log) -> None:
        disk, directory = self._dependencies.disk, log.directory
        try:
            if not disk.exists(directory):
                return
            for name in disk.list(directory):
                if name.endswith(CLEANED_FILE_SUFFIX):
                    disk.remove(f"{directory}/{name}")
        except OSError as error:
            # Opening the log removes them as well.
            _log.warning(
                "Files of a compaction could not be removed: directory=%s error=%s",
                directory,
                error,
            )

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
            duration_ms=self._dependencies.clock.monotonic_ms() - started_ms,
        )


def _sources(log: Log, end_offset: int) -> tuple[SourceSegment, ...]:
    """Return the segments below `end_offset`."""
    segments = [segment for segment in log.segments if segment.base_offset < end_offset]
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    return tuple(
        SourceSegment(segment.base_offset, segment.size, end)
        for segment, end in zip(segments, ends, strict=True)
    )
