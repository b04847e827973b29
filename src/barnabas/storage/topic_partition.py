"""The name of a partition, and of its directory (Kafka's TopicPartition)."""

from __future__ import annotations

from typing import NamedTuple

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"

# A directory name on Linux has at most 255 bytes; a topic alone may have 249.
DIRECTORY_NAME_MAX = 255
_UNIQUE_ID_DIGITS = 32


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
        return self._set_aside(f".{unique_id.hex()}{DELETE_SUFFIX}")

    def stray_directory_name(self, unique_id: bytes) -> str:
        """The name a directory is moved to that the metadata knows nothing of (KIP-858)."""
        return self._set_aside(f".{unique_id.hex()}{STRAY_SUFFIX}")

    def future_directory_name(self, unique_id: bytes) -> str:
        """The name of a replica that is on its way to another data directory (KIP-113).

        It is never cut, since the partition is found from it again: it may exceed
        DIRECTORY_NAME_MAX.
        """
        return f"{self.directory_name}.{unique_id.hex()}{FUTURE_SUFFIX}"

    def _set_aside(self, suffix: str) -> str:
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


def parse_future_directory_name(name: str) -> TopicPartition | None:
    """The partition whose future replica the directory holds; None for any other directory."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    directory_name, dot, unique_id = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    if not dot or len(unique_id) != _UNIQUE_ID_DIGITS:
        return None
    return parse_directory_name(directory_name)
