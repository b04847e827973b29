"""Logs that the checkpoint files know nothing of, though they have entries of the same name.

A topic is deleted and made anew under its old name: until the checkpoints are written the next time
they still have offsets of the old log. Applied to the new one after a kill, or a loss of power,
they would hide its first records, or leave them unchecked. A file in the log's directory says so
until it is over. Kafka writes its checkpoints in the midst of the deletion instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.disk import Disk
    from barnabas.storage.log import Log
    from barnabas.storage.log_directory import LogDirectory
    from barnabas.storage.topic_partition import TopicPartition

FILE_NAME = "younger-than-checkpoints"


class YoungLogs:
    """Sets the marks and takes them away."""

    __slots__ = ("_disk", "_marked")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        # With the number of writes of each checkpoint that were begun when the mark was set.
        self._marked: dict[tuple[TopicPartition, LogDirectory], tuple[int, ...]] = {}

    def mark(self, partition: TopicPartition, path: str, directory: LogDirectory) -> None:
        """Before a log is made in `path`: mark it if a checkpoint has an entry of its name."""
        if any(each.may_name(partition) for each in directory.checkpoints):
            self._disk.make_directory(path)
            self._disk.open(f"{path}/{FILE_NAME}", briefly=True).close()
            self.note(partition, directory)

    def note(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """The log has a mark."""
        started = tuple(each.started for each in directory.checkpoints)
        self._marked[partition, directory] = started

    def unmark(self, find: Callable[[TopicPartition, LogDirectory], Log | None]) -> None:
        """Take the marks from logs whose checkpoints were all begun and written since.

        Args:
            find: the log of a partition, or its future replica, in a directory.
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


def is_young(disk: Disk, path: str) -> bool:
    """Whether the checkpoints' entries are of an older log than the one in `path`."""
    return disk.exists(f"{path}/{FILE_NAME}")
