"""Logs that are newer than the checkpoint entries of the same name.

If a topic is deleted and created again, the checkpoints have offsets of the old log until they are
next written. After a kill or a power loss, applying these offsets to the new log would hide its
first records, or leave them unchecked. So a file in the log's directory marks the log until the
checkpoints are written. Kafka instead writes its checkpoints during the deletion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.disk import Disk
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition

FILE_NAME = "younger-than-checkpoints"


class RecreatedLogs:
    """Sets and removes the marks of logs newer than the checkpoints."""

    __slots__ = ("_disk", "_marked")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        # Values: number of started writes of each checkpoint when the mark was set.
        self._marked: dict[tuple[TopicPartition, LogDirectory], tuple[int, ...]] = {}

    def mark(self, partition: TopicPartition, path: str, directory: LogDirectory) -> None:
        """Mark a log before it is created in `path`, if a checkpoint has an entry of its name."""
        if any(each.may_name(partition) for each in directory.checkpoints):
            self._disk.make_directory(path)
            self._disk.open(f"{path}/{FILE_NAME}", briefly=True).close()
            self.record(partition, directory)

    def record(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """Record that a log is marked."""
        started = tuple(each.started for each in directory.checkpoints)
        self._marked[partition, directory] = started

    def unmark(self, find: Callable[[TopicPartition, LogDirectory], Log | None]) -> None:
        """Remove the marks of logs for which every checkpoint was started and written since.

        Args:
            find: returns the log of a partition, or its future replica, in a directory.
        """
        for (partition, directory), started in list(self._marked.items()):
            log = find(partition, directory)
            if log is None:
                del self._marked[partition, directory]
            elif all(
                each.written > before
                for each, before in zip(directory.checkpoints, started, strict=True)
            ):
                del self._marked[partition, directory]
                path = f"{log.directory}/{FILE_NAME}"
                if self._disk.exists(path):
                    self._disk.remove(path)


def is_recreated(disk: Disk, path: str) -> bool:
    """Return whether the log in `path` is newer than its checkpoint entries."""
    return disk.exists(f"{path}/{FILE_NAME}")
