"""Opens the data directories: locked, and found or made to belong to this node of this cluster.

One that the disk does not give is left out and the others go on (KIP-112); the one that holds the
metadata log has to be there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.primitives import uuid_to_string
from barnabas.server.feature_check import check_features
from barnabas.storage.errors import InconsistentDirectoryError
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.meta_properties import MetaProperties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.runtime.disk import Disk
    from barnabas.runtime.rng import Rng

_log = logging.getLogger(__name__)


class DataDirectories(msgspec.Struct, frozen=True):
    """What could be opened, and what could not."""

    # Those of log.dirs, in their order.
    logs: list[LogDirectory]
    # Those of log.dirs that the disk did not give.
    offline_paths: list[str]
    # Holds the metadata log; one of `logs`, or one of its own (metadata.log.dir).
    metadata: LogDirectory

    @property
    def cluster_id(self) -> str:
        """What they all belong to."""
        return self.metadata.meta.cluster_id

    def close(self) -> None:
        """Let others have them."""
        for directory in (*self.logs, self.metadata):
            directory.close()


class DirectoryPaths(msgspec.Struct, frozen=True):
    """What is configured."""

    # log.dirs
    logs: Sequence[str]
    # metadata.log.dir; None for the first of log.dirs.
    metadata: str | None = None
    # What empty ones are formatted for; None: a new cluster.
    cluster_id: str | None = None
    # Whether they may be formatted for a new cluster when no id is given.
    may_found_cluster: bool = True


def open_data_directories(
    disk: Disk, configured: DirectoryPaths, node_id: int, rng: Rng
) -> DataDirectories:
    """Open what is there, formatted for a new cluster where all are empty.

    Raises:
        DirectoryInUseError: another process has one.
        InconsistentDirectoryError: one belongs to another node, or they to several clusters.
        UnsupportedFeaturesError: the cluster is at feature levels that this node does not know.
        OSError: the directory of the metadata log, or every other one, cannot be used.
    """
    paths = list(dict.fromkeys(disk.absolute(path) for path in configured.logs))
    metadata_path = disk.absolute(configured.metadata or paths[0])
    wanted = list(dict.fromkeys([metadata_path, *paths]))
    found = _cluster_id(disk, wanted)
    check_features(disk, metadata_path)
    cluster_id = _settle_cluster_id(found, configured, metadata_path, rng)
    opened: dict[str, LogDirectory] = {}
    failed: dict[str, OSError] = {}
    try:
        for path in wanted:
            try:
                opened[path] = LogDirectory.open(disk, path, node_id, cluster_id, rng)
            except OSError as error:
                failed[path] = error
        _check_usable(paths, metadata_path, opened, failed)
    except BaseException:
        for directory in opened.values():
            directory.close()
        raise
    for path, reason in failed.items():
        _log.error(
            "Data directory %s cannot be used and is offline: %s. Its partitions are not served; "
            "mend the disk and start the broker again",
            path,
            reason,
        )
    for directory in opened.values():
        if found is not None and directory.was_formatted:
            _log.warning(
                "Data directory %s is new and empty. If it should hold data (is its disk "
                "mounted?), stop the broker now",
                directory.path,
            )
    logs = [opened[path] for path in paths if path in opened]
    return DataDirectories(logs, [path for path in paths if path in failed], opened[metadata_path])


def _settle_cluster_id(
    found: str | None, configured: DirectoryPaths, metadata_path: str, rng: Rng
) -> str:
    """The cluster that the directories belong to, or shall."""
    wanted = configured.cluster_id
    if found is not None:
        if wanted is not None and wanted != found:
            raise InconsistentDirectoryError(
                f"{metadata_path} belongs to cluster {found}, this node is to be one of {wanted}; "
                f"take cluster.id={found} or use another data directory"
            )
        return found
    if wanted is None and not configured.may_found_cluster:
        raise InconsistentDirectoryError(
            f"{metadata_path} is empty, and which cluster this node belongs to is not said: give "
            f"all nodes the same --set cluster.id=UUID at their first start, for example "
            f"--set cluster.id={uuid_to_string(rng.uuid())}"
        )
    return wanted or uuid_to_string(rng.uuid())


def _check_usable(
    paths: Sequence[str],
    metadata_path: str,
    opened: dict[str, LogDirectory],
    failed: dict[str, OSError],
) -> None:
    if metadata_path in failed:
        raise failed[metadata_path]
    if not any(path in opened for path in paths):
        raise failed[paths[0]]
    ids: dict[bytes, str] = {}
    for path, directory in opened.items():
        other = ids.setdefault(directory.id, path)
        if other != path:
            raise InconsistentDirectoryError(
                f"{path} and {other} have the same directory.id: one is a copy of the other; "
                f"use one of them"
            )


def _cluster_id(disk: Disk, paths: Sequence[str]) -> str | None:
    found: dict[str, str] = {}
    for path in paths:
        try:
            meta = MetaProperties.read(disk, path) if disk.exists(path) else None
        except OSError:
            # Said when it is opened.
            continue
        if meta is not None:
            found.setdefault(meta.cluster_id, path)
    if len(found) > 1:
        listed = ", ".join(f"{path} to {cluster}" for cluster, path in found.items())
        raise InconsistentDirectoryError(
            f"the data directories belong to several clusters ({listed}); use those of one"
        )
    return next(iter(found), None)
