"""Topic id of a partition's directory: `partition.metadata`, version 0 (KIP-516)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.storage.file_names import PARTITION_METADATA

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk

_VERSION = "0"
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
    if values.get("version") != _VERSION:
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
    return f"version: {_VERSION}\ntopic_id: {uuid_to_string(topic_id)}".encode()


def is_damaged_copy(disk: Disk, directory: str, topic_id: bytes) -> bool:
    """Return whether the file is a damaged copy for that topic: flipped bits, or truncated."""
    path = f"{directory}/{PARTITION_METADATA}"
    found = disk.read(path) if disk.exists(path) else b""
    whole = encode_topic_id(topic_id)
    if len(found) == len(whole):
        difference = int.from_bytes(found, "big") ^ int.from_bytes(whole, "big")
        return difference.bit_count() <= _FLIPPED_BITS_MAX
    return len(found) >= _PREFIX_BYTES_MIN and whole.startswith(found)
