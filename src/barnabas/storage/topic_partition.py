"""Names of a partition, of its directory (Kafka's TopicPartition), and of the files in it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"

# Limit of a file name on Linux in bytes; a topic name alone may have 249.
DIRECTORY_NAME_MAX = 255
_UNIQUE_ID_DIGITS = 32


class TopicPartition(NamedTuple):
    """A partition by topic name and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def directory_name(self) -> str:
        """Name of the directory with the partition's log."""
        return f"{self.topic}-{self.partition}"

    def deleted_directory_name(self, unique_id: bytes) -> str:
        """Return the name of the directory while it is pending deletion.

        Args:
            unique_id: 16 bytes, so that each deletion of a topic of that name has its own
                directory.
        """
        return self._shortened_name(f".{unique_id.hex()}{DELETE_SUFFIX}")

    def stray_directory_name(self, unique_id: bytes) -> str:
        """Return the name for a directory that the metadata does not know (KIP-858)."""
        return self._shortened_name(f".{unique_id.hex()}{STRAY_SUFFIX}")

    def future_directory_name(self, unique_id: bytes) -> str:
        """Return the directory name of a replica that moves to another data directory (KIP-113).

        The name is never shortened, because the partition is parsed from it again. It may exceed
        DIRECTORY_NAME_MAX.
        """
        return f"{self.directory_name}.{unique_id.hex()}{FUTURE_SUFFIX}"

    def _shortened_name(self, suffix: str) -> str:
        return self.directory_name[: DIRECTORY_NAME_MAX - len(suffix)] + suffix


# The metadata log lies in a directory of logs, but belongs to the raft driver.
CLUSTER_METADATA = TopicPartition("__cluster_metadata", 0)


class TopicIdPartition(NamedTuple):
    """A partition by topic id and name."""

    topic_id: bytes
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The same partition without the topic id."""
        return made_topic_partition((self.topic, self.partition))


# The same as `_make` of the classes, but without Python code.
made_topic_partition: Callable[[tuple[str, int]], TopicPartition] = partial(
    tuple.__new__, TopicPartition
)
made_topic_id_partition: Callable[[tuple[bytes, str, int]], TopicIdPartition] = partial(
    tuple.__new__, TopicIdPartition
)


def parse_directory_name(name: str) -> TopicPartition | None:
    """Return the partition whose log is in a directory of that name.

    Returns:
        None for any other directory, including one that is pending deletion.
    """
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return TopicPartition(topic, int(partition))


def parse_future_directory_name(name: str) -> TopicPartition | None:
    """Return the partition of a future replica's directory; None for any other directory."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    directory_name, dot, unique_id = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    if not dot or len(unique_id) != _UNIQUE_ID_DIGITS:
        return None
    return parse_directory_name(directory_name)


LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
DELETED_FILE_SUFFIX = ".deleted"
CLEANED_FILE_SUFFIX = ".cleaned"
SWAP_FILE_SUFFIX = ".swap"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
# Barnabas' own file; Apache Kafka ignores it.
LARGEST_TIMESTAMPS = "largest-timestamps"

# One digit more than the largest offset, 2**63 - 1, has.
_OFFSET_DIGITS = 20


def offset_file(directory: str, offset: int, suffix: str) -> str:
    """Return the path of the file that begins at `offset`."""
    return f"{directory}/{offset:020d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """Return the offset in a file name; None if the name does not have that suffix."""
    stem = name.removesuffix(suffix)
    if stem == name or not (stem.isascii() and stem.isdigit()) or len(stem) != _OFFSET_DIGITS:
        return None
    return int(stem)
