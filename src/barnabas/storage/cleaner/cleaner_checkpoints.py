"""End offset of each log's last compaction: `cleaner-offset-checkpoint` of each data directory.

The offsets are kept in memory and written off the loop after each change. The next write drops
partitions that no longer exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.files.checkpoint import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.runtime.executor import Executor
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.topic_partition import TopicPartition


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
                lambda: dict(self._of(directory)),
                lambda error: self._on_failure(directory.path, error),
            )
