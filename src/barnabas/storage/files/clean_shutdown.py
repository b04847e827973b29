"""Marker of a clean shutdown, `.kafka_cleanshutdown`: no log needs recovery (KIP-966)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.runtime.disk import Disk

FILE_NAME = ".kafka_cleanshutdown"
NO_BROKER_EPOCH = -1
_VERSION = 0


def write_marker(disk: Disk, directory: str, broker_epoch: int) -> None:
    """Write the marker; every log in the directory must be closed and synced."""
    content = json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write_atomically(f"{directory}/{FILE_NAME}", content.encode())


def read_marker(disk: Disk, directory: str) -> int | None:
    """Read the marker.

    Returns:
        The broker epoch at shutdown, -1 if the marker has none; None without a marker.
    """
    path = f"{directory}/{FILE_NAME}"
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
        disk.remove(f"{directory}/{FILE_NAME}")
        disk.sync_directory(directory)
    return epoch


def previous_broker_epoch(disk: Disk, directories: Iterable[str]) -> int:
    """Return the broker epoch of all markers; -1 if it is missing or differs."""
    epochs = {read_marker(disk, directory) for directory in directories}
    epoch = epochs.pop() if len(epochs) == 1 else None
    return NO_BROKER_EPOCH if epoch is None else epoch
