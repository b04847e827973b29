"""Identity of a log: its partition, and the topic id in `partition.metadata` (KIP-516)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.errors import InconsistentTopicIdError
from barnabas.storage.file_names import PARTITION_METADATA
from barnabas.storage.files.partition_metadata import is_damaged_copy, write_topic_id

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk
    from barnabas.storage.log.disk_guard import DiskGuard
    from barnabas.storage.topic_partition import TopicPartition


class LogIdentity:
    """The partition of a log and its topic id."""

    __slots__ = ("_disk", "_guard", "_is_synced", "topic_id", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes | None,
        is_synced: bool,
        disk: Disk,
        guard: DiskGuard,
    ) -> None:
        self._disk = disk
        self._guard = guard
        self.topic_partition = topic_partition
        # 16 bytes; None while the topic id is unknown. Set once, and replaced only if the file is
        # a damaged copy.
        self.topic_id = topic_id
        # Whether the file is synced, or part of the next sync.
        self._is_synced = is_synced

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Store the topic id, or check it against the stored one.

        Raises:
            InconsistentTopicIdError: the log belongs to another topic.
        """
        directory = self._guard.directory
        if self.topic_id is None:
            with self._guard:
                write_topic_id(self._disk, directory, topic_id)
            self._is_synced = False
            self.topic_id = topic_id
        elif self.topic_id != topic_id:
            raise InconsistentTopicIdError(f"{directory} belongs to another topic id")

    def is_damaged(self, topic_id: bytes) -> bool:
        """Return whether the topic id file is a damaged copy of `topic_id`."""
        with self._guard:
            return is_damaged_copy(self._disk, self._guard.directory, topic_id)

    def repair_topic_id(self, topic_id: bytes) -> None:
        """Replace the topic id in the damaged file."""
        self.topic_id = None
        self.assign_topic_id(topic_id)

    def take_unsynced(self) -> list[str]:
        """Return the file if the next sync of the log must include it, and mark it synced."""
        if self._is_synced or self.topic_id is None:
            return []
        # Without a topic id, the directory has no owner after a power loss.
        self._is_synced = True
        return [f"{self._guard.directory}/{PARTITION_METADATA}"]
