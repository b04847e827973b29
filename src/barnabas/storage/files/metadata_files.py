"""Small files that describe a directory.

- `meta.properties`, version 1: the owner of a data directory (KIP-631, KIP-858).
- `partition.metadata`, version 0: the topic id of a partition's directory (KIP-516). `LogIdentity`
  has the partition and topic id of an open log.
- `.kafka_cleanshutdown`: the marker of a clean shutdown; no log needs recovery (KIP-966).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.protocol.schema import ZERO_UUID
from barnabas.settings.properties import PropertiesError, format_properties, parse_properties
from barnabas.storage.errors import InconsistentDirectoryError, InconsistentTopicIdError
from barnabas.storage.topic_partition import PARTITION_METADATA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.runtime.disk import Disk
    from barnabas.storage.log_dependencies import DiskGuard
    from barnabas.storage.topic_partition import TopicPartition


META_PROPERTIES = "meta.properties"
_META_VERSION = "1"


def is_formatted(disk: Disk, directory: str) -> bool:
    """Return whether a directory has an identity."""
    return disk.exists(f"{directory}/{META_PROPERTIES}")


class MetaProperties(msgspec.Struct, frozen=True):
    """The identity of a data directory."""

    cluster_id: str
    node_id: int
    # 16 bytes; zero if the file has no id, because its format is older.
    directory_id: bytes = ZERO_UUID

    @classmethod
    def read(cls, disk: Disk, directory: str) -> MetaProperties | None:
        """Read the file; return None if the directory is not formatted.

        Raises:
            InconsistentDirectoryError: the file is invalid.
        """
        path = f"{directory}/{META_PROPERTIES}"
        if not disk.exists(path):
            return None
        try:
            values = parse_properties(disk.read(path).decode())
            version = values["version"]
            if version != _META_VERSION:
                raise InconsistentDirectoryError(
                    f"{path} has version {version!r}, but this broker reads version {_META_VERSION}"
                )
            directory_id = values.get("directory.id")
            return cls(
                values["cluster.id"],
                _node_id(values["node.id"]),
                _directory_id(directory_id) if directory_id else ZERO_UUID,
            )
        except KeyError as error:
            raise InconsistentDirectoryError(f"{path} lacks {error.args[0]}") from error
        except UnicodeDecodeError as error:
            raise InconsistentDirectoryError(
                f"{path} cannot be read: the file is not text; restore it from a backup, or copy "
                "it from another data directory of this node with a new directory.id"
            ) from error
        except (PropertiesError, ValueError) as error:
            raise InconsistentDirectoryError(f"{path} cannot be read: {error}") from error

    def write(self, disk: Disk, directory: str) -> None:
        """Write and sync the file."""
        values = {
            "node.id": str(self.node_id),
            "directory.id": uuid_to_string(self.directory_id),
            "version": _META_VERSION,
            "cluster.id": self.cluster_id,
        }
        disk.write_atomically(f"{directory}/{META_PROPERTIES}", format_properties(values).encode())


def _node_id(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"node.id is {text!r}, but must be a number")
    return int(text)


def _directory_id(text: str) -> bytes:
    try:
        return uuid_from_string(text)
    except ProtocolError:
        raise ValueError(f"directory.id is {text!r}, but must be 22 characters of base64") from None


_TOPIC_ID_VERSION = "0"
# Two topic ids differ in about 64 bits; so few different bits indicate a damaged copy.
_FLIPPED_BITS_MAX = 8
# A truncated file with this many characters of the id still identifies the topic.
_PREFIX_BYTES_MIN = len("version: 0\ntopic_id: ") + 8


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """Return the topic id of the directory; None if the file is absent or torn by a crash."""
    try:
        content = disk.read(f"{directory}/{PARTITION_METADATA}")
    except FileNotFoundError:
        return None
    lines = content.decode("utf-8", "replace").splitlines()
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    if values.get("version") != _TOPIC_ID_VERSION:
        return None
    try:
        return uuid_from_string(values.get("topic_id", ""))
    except ValueError:
        return None


def write_topic_id(disk: Disk, directory: str, topic_id: bytes) -> None:
    """Write the file; `Log.prepare_flush` syncs it together with the first records."""
    disk.write_atomically(
        f"{directory}/{PARTITION_METADATA}", encode_topic_id(topic_id), sync=False
    )


def encode_topic_id(topic_id: bytes) -> bytes:
    """Return the content of the file."""
    return f"version: {_TOPIC_ID_VERSION}\ntopic_id: {uuid_to_string(topic_id)}".encode()


def is_damaged_copy(disk: Disk, directory: str, topic_id: bytes) -> bool:
    """Return whether the file is a damaged copy for that topic: flipped bits, or truncated."""
    path = f"{directory}/{PARTITION_METADATA}"
    found = disk.read(path) if disk.exists(path) else b""
    whole = encode_topic_id(topic_id)
    if len(found) == len(whole):
        difference = int.from_bytes(found, "big") ^ int.from_bytes(whole, "big")
        return difference.bit_count() <= _FLIPPED_BITS_MAX
    return len(found) >= _PREFIX_BYTES_MIN and whole.startswith(found)


CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
NO_BROKER_EPOCH = -1
_MARKER_VERSION = 0


def write_marker(disk: Disk, directory: str, broker_epoch: int) -> None:
    """Write the marker; every log in the directory must be closed and synced."""
    content = json.dumps(
        {"version": _MARKER_VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")
    )
    disk.write_atomically(f"{directory}/{CLEAN_SHUTDOWN}", content.encode())


def read_marker(disk: Disk, directory: str) -> int | None:
    """Read the marker.

    Returns:
        The broker epoch at shutdown, -1 if the marker has none; None without a marker.
    """
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if not disk.exists(path):
        return None
    try:
        epoch = json.loads(disk.read(path))["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH


def take_marker(disk: Disk, directory: str) -> int | None:
    """Remove the marker, before anything is written to the directory.

    Returns:
        The same as `read_marker`.
    """
    epoch = read_marker(disk, directory)
    if epoch is not None:
        disk.remove(f"{directory}/{CLEAN_SHUTDOWN}")
        disk.sync_directory(directory)
    return epoch


def previous_broker_epoch(disk: Disk, directories: Iterable[str]) -> int:
    """Return the broker epoch of all markers; -1 if it is missing or differs."""
    epochs = {read_marker(disk, directory) for directory in directories}
    epoch = epochs.pop() if len(epochs) == 1 else None
    return NO_BROKER_EPOCH if epoch is None else epoch


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
