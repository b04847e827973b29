"""The name of a partition, and of its directory (Kafka's TopicPartition)."""

from __future__ import annotations

from typing import NamedTuple

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"

# A directory name on Linux has at most 255 bytes; a topic alone may have 249.
DIRECTORY_NAME_MAX = 255


class TopicPartition(NamedTuple):
    """A partition by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def directory_name(self) -> str:
        """The name of the directory that holds the partition's log."""
        return f"{self.topic}-{self.partition}"

    def deleted_directory_name(self, unique_id: bytes) -> str:
        """The name the directory is moved to while it waits for its deletion.

        Args:
            unique_id: 16 bytes, so that a topic created and deleted twice gets two names.
        """
        suffix = f".{unique_id.hex()}{DELETE_SUFFIX}"
        return self.directory_name[: DIRECTORY_NAME_MAX - len(suffix)] + suffix


class TopicIdPartition(NamedTuple):
    """A partition by topic id and name."""

    topic_id: bytes
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The same partition by name alone."""
        return TopicPartition(self.topic, self.partition)


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition whose log the directory holds.

    Returns:
        None for a directory of any other kind, one that waits for its deletion too.
    """
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return TopicPartition(topic, int(partition))
