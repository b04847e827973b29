"""Selection of the part of a log to compact (Kafka's LogCleanerManager).

Four parts of a log are never compacted: the active segment, batches from the last stable offset on,
segments younger than `min.compaction.lag.ms`, and unsynced batches. Recovery after a crash reads
from the unsynced batches on, and a running sync may use their files.

The end offset of each log's last compaction is in the file `cleaner-offset-checkpoint` of its data
directory. These offsets are kept in memory and written off the loop after each change. The next
write drops partitions that no longer exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.storage.config import LONG_MAX
from barnabas.storage.files.checkpoint import CheckpointError, collected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.runtime.executor import Executor
    from barnabas.storage.config import LogConfig
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log.log import Log
    from barnabas.storage.segment.segment import Segment
    from barnabas.storage.topic_partition import TopicPartition


class CleanableOffsets(NamedTuple):
    """The dirty range of a log."""

    first_dirty_offset: int
    # Exclusive end.
    first_uncleanable_offset: int
    # Whether the checkpoint was invalid and must be corrected.
    is_reset: bool


class LogToClean(msgspec.Struct, frozen=True):
    """Amount of work for a log."""

    first_dirty_offset: int
    # Base offset of the first segment that must not change.
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    # Time by which the oldest dirty segment exceeds max.compaction.lag.ms; 0 if it does not.
    compaction_delay_ms: int

    @property
    def total_bytes(self) -> int:
        """Bytes that a pass reads."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """Fraction of those bytes that was never compacted (dirty ratio)."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    def is_worth_it(self, config: LogConfig) -> bool:
        """Return whether the log is dirty enough, or has exceeded max.compaction.lag.ms."""
        if self.compaction_delay_ms > 0 and self.cleanable_bytes:
            return True
        return self.cleanable_ratio > config.min_cleanable_dirty_ratio


def cleanable_offsets(log: Log, last_clean: int | None, now_ms: int) -> CleanableOffsets:
    """Return the dirty range of a log.

    Args:
        last_clean: end of the last pass, from the checkpoint; None without one.
    """
    start, is_reset = log.log_start_offset, False
    first_dirty = start if last_clean is None else last_clean
    if not start <= first_dirty <= log.log_end_offset:
        # The log was truncated, or its start was deleted, without a change of the checkpoint.
        first_dirty, is_reset = start, True
    active = log.segments.active
    bounds = [log.last_stable_offset, active.base_offset, log.sync.safe_recovery_point]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        youngest_ms = now_ms - lag_ms
        bounds += [
            segment.base_offset
            for segment in _sealed(log, first_dirty)
            if _largest_timestamp(segment) > youngest_ms
        ][:1]
    return CleanableOffsets(first_dirty, max(first_dirty, min(bounds)), is_reset)


def log_to_clean(log: Log, offsets: CleanableOffsets, now_ms: int) -> LogToClean:
    """Measure the work that a pass over the log has."""
    first_dirty = offsets.first_dirty_offset
    uncleanable = _first_uncleanable(log, offsets.first_uncleanable_offset)
    clean_bytes = cleanable_bytes = 0
    segments = log.segments
    dirty = segments.floor(first_dirty)
    dirty_base = segments[0].base_offset if dirty is None else dirty.base_offset
    for segment in segments:
        if segment.base_offset >= uncleanable.base_offset:
            break
        if segment.base_offset < dirty_base:
            clean_bytes += segment.size
        else:
            cleanable_bytes += segment.size
    return LogToClean(
        first_dirty,
        uncleanable.base_offset,
        clean_bytes,
        cleanable_bytes,
        _compaction_delay_ms(log, first_dirty, now_ms),
    )


def _first_uncleanable(log: Log, offset: int) -> Segment:
    """Return the first segment that must not change."""
    sealed = _sealed(log, offset)
    return sealed[0] if sealed else log.segments.active


def _sealed(log: Log, offset: int) -> Sequence[Segment]:
    """Return the sealed segments that can contain `offset` or later offsets."""
    return [
        segment
        for segment in log.segments.from_offset(offset)
        if segment is not log.segments.active
    ]


def _largest_timestamp(segment: Segment) -> int:
    timestamp = segment.max_timestamp
    return timestamp if timestamp >= 0 else segment.modified_ms()


def _compaction_delay_ms(log: Log, first_dirty: int, now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms == LONG_MAX:
        # Return without reading any segment.
        return 0
    timestamps = [segment.first_timestamp() for segment in _sealed(log, first_dirty)]
    earliest = min((each for each in timestamps if each > 0), default=LONG_MAX)
    return max(0, now_ms - lag_ms - earliest)


class CleanerCheckpoints:
    """The cleaner checkpoints of all data directories."""

    __slots__ = ("_executor", "_offsets", "_on_failure")

    def __init__(self, executor: Executor, on_failure: Callable[[str, OSError], None]) -> None:
        self._executor = executor
        self._on_failure = on_failure
        # Key: path of the directory. A file is read on first use.
        self._offsets: dict[str, dict[TopicPartition, int]] = {}

    def get(self, directory: LogDirectory, partition: TopicPartition) -> int | None:
        """Return where the last pass over a partition's log ended; None without a pass."""
        return self._of(directory).get(partition)

    def put(self, directory: LogDirectory, partition: TopicPartition, offset: int) -> None:
        """Record that a pass ended at `offset`."""
        self._of(directory)[partition] = offset
        self._write(directory)

    def lower(self, directory: LogDirectory, partition: TopicPartition, offset: int) -> None:
        """Lower the offset after a truncation, because new records were never compacted."""
        known = self.get(directory, partition)
        if known is not None and known > offset:
            self.put(directory, partition, offset)

    def remove(self, directory: LogDirectory, partition: TopicPartition) -> None:
        """Remove the offset of a deleted log."""
        if self._of(directory).pop(partition, None) is not None:
            self._write(directory)

    def move(self, partition: TopicPartition, source: LogDirectory, target: LogDirectory) -> None:
        """Move the offset of a log to its new directory (AlterReplicaLogDirs)."""
        offset = self.get(source, partition)
        if offset is not None:
            self.put(target, partition, offset)
            self.remove(source, partition)

    def forget_all_but(self, directory: LogDirectory, partitions: Iterable[TopicPartition]) -> None:
        """Remove the offsets of other partitions from memory."""
        offsets, kept = self._of(directory), set(partitions)
        for partition in [each for each in offsets if each not in kept]:
            del offsets[partition]

    def _of(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        offsets = self._offsets.get(directory.path)
        if offsets is None:
            try:
                offsets = directory.cleaner_offsets.read()
            except CheckpointError:
                # All logs are compacted again, which costs only time.
                offsets = {}
            except OSError as error:
                self._on_failure(directory.path, error)
                offsets = {}
            self._offsets[directory.path] = offsets
        return offsets

    def _write(self, directory: LogDirectory) -> None:
        if directory.is_online:
            directory.cleaner_offsets.write_async(
                self._executor,
                lambda: collected(dict(self._of(directory))),
                lambda error: self._on_failure(directory.path, error),
            )
