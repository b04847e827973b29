"""Which topic a partition's directory belongs to: `partition.metadata`, version 0 (KIP-516)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.storage.file_names import PARTITION_METADATA

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk

_VERSION = "0"
# Ids of two topics differ in some 64 bits: what differs in so few is a damaged copy.
_FLIPPED_BITS_MAX = 8
# So many characters of an id at the beginning of a file that was truncated name the topic.
_PREFIX_BYTES_MIN = len("version: 0\ntopic_id: ") + 8


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """The topic id of the directory; None if the file is absent, or was torn by a crash."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        return None
    lines = disk.read(path).decode("utf-8", "replace").splitlines()
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    if values.get("version") != _VERSION:
        return None
    try:
        return uuid_from_string(values.get("topic_id", ""))
    except ValueError:
        return None


def write_topic_id(disk: Disk, directory: str, topic_id: bytes) -> None:
    """Write the file; it is synced together with the first records (`Log.prepare_flush`)."""
    disk.write_atomically(
        f"{directory}/{PARTITION_METADATA}", encode_topic_id(topic_id), sync=False
    )


def encode_topic_id(topic_id: bytes) -> bytes:
    """The content of the file."""
    return f"version: {_VERSION}\ntopic_id: {uuid_to_string(topic_id)}".encode()


def is_damaged_copy(disk: Disk, directory: str, topic_id: bytes) -> bool:
    """Whether the file surely named that topic once: some bits flipped, or its end is cut off."""
    path = f"{directory}/{PARTITION_METADATA}"
    found = disk.read(path) if disk.exists(path) else b""
    whole = encode_topic_id(topic_id)
    if len(found) == len(whole):
        difference = int.from_bytes(found, "big") ^ int.from_bytes(whole, "big")
        return difference.bit_count() <= _FLIPPED_BITS_MAX
    return len(found) >= _PREFIX_BYTES_MIN and whole.startswith(found)
