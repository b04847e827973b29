"""Opens the data directories: locked, and found or made to belong to this node of this cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.primitives import uuid_to_string
from barnabas.storage.errors import InconsistentDirectoryError
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.meta_properties import MetaProperties

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.rng import Rng


def open_log_directories(
    disk: Disk, paths: list[str], node_id: int, rng: Rng
) -> list[LogDirectory]:
    """All of them, or none: formatted for a new cluster where all are empty.

    Raises:
        DirectoryInUseError: another process has one.
        InconsistentDirectoryError: one belongs to another node, or they to several clusters.
    """
    cluster_id = _cluster_id(disk, paths) or uuid_to_string(rng.uuid())
    opened: list[LogDirectory] = []
    try:
        for path in paths:
            opened.append(LogDirectory.open(disk, path, node_id, cluster_id, rng))  # noqa: PERF401
    except BaseException:
        for directory in opened:
            directory.close()
        raise
    return opened


def _cluster_id(disk: Disk, paths: list[str]) -> str | None:
    found = {
        meta.cluster_id: path
        for path in paths
        if disk.exists(path) and (meta := MetaProperties.read(disk, path)) is not None
    }
    if len(found) > 1:
        listed = ", ".join(f"{path} to {cluster}" for cluster, path in found.items())
        raise InconsistentDirectoryError(
            f"the data directories belong to several clusters ({listed}); use those of one"
        )
    return next(iter(found), None)
