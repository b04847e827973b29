"""Which topic a partition's directory belongs to: `partition.metadata`, version 0 (KIP-516)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.storage.file_names import PARTITION_METADATA

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk

_VERSION = "0"


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
    content = f"version: {_VERSION}\ntopic_id: {uuid_to_string(topic_id)}"
    disk.write_atomically(f"{directory}/{PARTITION_METADATA}", content.encode(), sync=False)
