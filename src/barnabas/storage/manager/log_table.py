"""Logs by partition with their data directories, and the choice of a directory for a new log.

Kafka: LogManager.nextLogDirs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from barnabas.storage.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition


class LogTable:
    """The logs of partitions, or their future replicas.

    Invariant: all maps have the same partitions.
    """

    __slots__ = ("_directories", "_logs_in", "logs")

    def __init__(self) -> None:
        # The open logs. Only the methods of this class change it.
        self.logs: dict[TopicPartition, Log] = {}
        # The data directory of each log.
        self._directories: dict[TopicPartition, LogDirectory] = {}
        # The logs again, by directory.
        self._logs_in: defaultdict[LogDirectory, dict[TopicPartition, Log]] = defaultdict(dict)

    def put(self, partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        """Add a log, or replace the one of the partition."""
        if partition in self.logs:
            self.pop(partition)
        self.logs[partition] = log
        self._directories[partition] = directory
        self._logs_in[directory][partition] = log

    def pop(self, partition: TopicPartition) -> tuple[Log, LogDirectory]:
        """Remove a log, and return it with its directory."""
        log, directory = self.logs.pop(partition), self._directories.pop(partition)
        del self._logs_in[directory][partition]
        return log, directory

    def clear(self) -> None:
        """Remove all logs."""
        self.logs.clear()
        self._directories.clear()
        self._logs_in.clear()

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the directory of the partition's log; None without a log."""
        return self._directories.get(partition)

    @property
    def directories(self) -> Iterable[LogDirectory]:
        """The directory of each log."""
        return self._directories.values()

    def find_in(self, partition: TopicPartition, directory: LogDirectory) -> Log | None:
        """Return the partition's log if it is in that directory, or None."""
        return self._logs_in[directory].get(partition)

    def logs_in(self, directory: LogDirectory) -> dict[TopicPartition, Log]:
        """Return the logs of a directory, as they are now."""
        return self._logs_in[directory].copy()


def emptiest(online: list[LogDirectory], owners: Iterable[LogDirectory]) -> LogDirectory:
    """Return the directory with the fewest logs; a cordoned one only if all are cordoned.

    Args:
        online: the usable directories, in the order of log.dirs.
        owners: the directory of each existing log.

    Raises:
        KafkaStorageError: no directory is online.
    """
    if not online:
        raise KafkaStorageError("no data directory is online")
    usable = [directory for directory in online if not directory.is_cordoned] or online
    if len(usable) == 1:
        return usable[0]
    counts = Counter(directory.path for directory in owners)
    return min(usable, key=lambda directory: counts[directory.path])
