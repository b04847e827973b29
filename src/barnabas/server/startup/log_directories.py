"""Opening of the data directories: lock them, check their identity, and format empty ones.

A directory that cannot be read is offline and the others work without it (KIP-112). The directory
of the metadata log must be available.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.schema import ZERO_UUID
from barnabas.raft.log.metadata_log import METADATA_PARTITION
from barnabas.server.startup.features import check_features
from barnabas.storage.errors import InconsistentDirectoryError
from barnabas.storage.files.log_directory import LogDirectory, check_node
from barnabas.storage.files.metadata_files import MetaProperties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.runtime.disk import Disk
    from barnabas.runtime.rng import Rng

_log = logging.getLogger(__name__)


class DataDirectories(msgspec.Struct, frozen=True):
    """The open data directories, and the paths of offline directories."""

    # Open directories of log.dirs, in the configured order.
    logs: list[LogDirectory]
    # Directories of log.dirs that could not be opened.
    offline_paths: list[str]
    # Directory of the metadata log: one of `logs`, or a separate one (metadata.log.dir).
    metadata: LogDirectory

    @property
    def cluster_id(self) -> str:
        """Id of the cluster that all directories belong to."""
        return self.metadata.meta.cluster_id

    def close(self) -> None:
        """Release the locks of all directories."""
        for directory in (*self.logs, self.metadata):
            directory.close()


class DirectoryPaths(msgspec.Struct, frozen=True):
    """Configured data directories, and the cluster for which empty directories are formatted."""

    # log.dirs
    logs: Sequence[str]
    # metadata.log.dir; None for the first of log.dirs.
    metadata: str | None = None
    # Cluster id for empty directories. None: create a new cluster id.
    cluster_id: str | None = None
    # Whether empty directories may be formatted for a new cluster if no id is configured.
    may_found_cluster: bool = True


def open_data_directories(
    disk: Disk,
    configured: DirectoryPaths,
    node_id: int,
    rng: Rng,
    before_format: Callable[[str], None] = lambda _: None,
) -> DataDirectories:
    """Open the data directories, and format the empty ones.

    If all directories are empty, they are formatted for the configured cluster or for a new one.

    Args:
        disk: the disk with the directories.
        configured: paths of the directories.
        node_id: id of this node.
        rng: source of ids for new directories.
        before_format: called with the path of the metadata log's directory before it is formatted.
            The directory exists at that point.

    Raises:
        DirectoryInUseError: another process uses a directory.
        InconsistentDirectoryError: a directory belongs to another node, or the directories belong
            to different clusters.
        UnsupportedFeaturesError: the cluster has feature levels that this node does not know.
        OSError: the directory of the metadata log, or every directory of log.dirs, cannot be used.
    """
    paths = list(dict.fromkeys(disk.absolute(path) for path in configured.logs))
    metadata_path = disk.absolute(configured.metadata or paths[0])
    all_paths = list(dict.fromkeys([metadata_path, *paths]))
    # Check all directories before any change, so that a rejected directory stays unchanged.
    identities = _identities(disk, all_paths)
    found = _check_identities(identities, node_id)
    check_features(disk, metadata_path)
    cluster_id = _choose_cluster_id(found, configured, metadata_path, rng)
    _check_metadata_directory(disk, all_paths, identities)
    if metadata_path in identities and identities[metadata_path] is None:
        disk.make_directory(metadata_path)
        before_format(metadata_path)
    opened: dict[str, LogDirectory] = {}
    failed: dict[str, OSError] = {}
    try:
        for path in all_paths:
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
            "repair the disk and restart the broker",
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


def _choose_cluster_id(
    found: str | None, configured: DirectoryPaths, metadata_path: str, rng: Rng
) -> str:
    """Return the cluster id of the directories, or the id for formatting empty directories."""
    configured_id = configured.cluster_id
    if found is not None:
        if configured_id is not None and configured_id != found:
            raise InconsistentDirectoryError(
                f"{metadata_path} belongs to cluster {found}, but this node has "
                f"cluster.id={configured_id}; set cluster.id={found} or use another data directory"
            )
        return found
    if configured_id is None and not configured.may_found_cluster:
        raise InconsistentDirectoryError(
            f"{metadata_path} is empty, and cluster.id is not set. Give all nodes of a cluster the "
            f"same --set cluster.id=UUID at their first start; for a new cluster "
            f"`barnabas format --random-uuid` prints one"
        )
    return configured_id or uuid_to_string(rng.uuid())


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


def _identities(disk: Disk, paths: Sequence[str]) -> dict[str, MetaProperties | None]:
    """Return the identity of each readable directory, None for an unformatted one."""
    found: dict[str, MetaProperties | None] = {}
    for path in paths:
        try:
            found[path] = MetaProperties.read(disk, path) if disk.exists(path) else None
        except OSError:
            # The error is reported when the directory is opened.
            continue
    return found


def _check_identities(identities: Mapping[str, MetaProperties | None], node_id: int) -> str | None:
    """Check that all directories belong to one cluster and this node, and have different ids.

    Returns:
        The cluster id, or None if no directory is formatted.
    """
    formatted = {path: meta for path, meta in identities.items() if meta is not None}
    clusters = {meta.cluster_id: path for path, meta in formatted.items()}
    if len(clusters) > 1:
        listed = ", ".join(f"{path} to {cluster}" for cluster, path in clusters.items())
        raise InconsistentDirectoryError(
            f"the data directories belong to several clusters ({listed}); use those of one cluster"
        )
    ids: dict[bytes, str] = {}
    for path, meta in formatted.items():
        check_node(path, meta, node_id)
        # An old directory without an id gets one when it is opened.
        other = path if meta.directory_id == ZERO_UUID else ids.setdefault(meta.directory_id, path)
        if other != path:
            raise InconsistentDirectoryError(
                f"{path} and {other} have the same directory.id: one is a copy of the other; "
                f"use one of them"
            )
    return next(iter(clusters), None)


def _check_metadata_directory(
    disk: Disk, all_paths: Sequence[str], identities: Mapping[str, MetaProperties | None]
) -> None:
    """Check that this start does not create a new metadata log beside existing logs, as Kafka does.

    Args:
        disk: the disk with the directories.
        all_paths: all directories, beginning with the directory of the metadata log.
        identities: identities of the readable directories.

    Raises:
        InconsistentDirectoryError: another directory has the metadata log, or other directories are
            formatted but the directory of the metadata log is not.
    """
    metadata_path = all_paths[0]
    for path in all_paths[1:]:
        if path in identities and disk.exists(f"{path}/{METADATA_PARTITION.directory_name}"):
            raise InconsistentDirectoryError(
                f"{path} has a metadata log, but it is configured to be in {metadata_path}; "
                f"set metadata.log.dir={path}, or name it first in log.dirs"
            )
    formatted = [path for path, meta in identities.items() if meta is not None]
    if formatted and metadata_path in identities and identities[metadata_path] is None:
        raise InconsistentDirectoryError(
            f"{metadata_path}, the directory of the metadata log, is not formatted, and "
            f"{formatted[0]} is: is its disk mounted? If its data is lost, format it by `barnabas "
            f"format SERVER.PROPERTIES --cluster-id UUID --ignore-formatted`"
        )
