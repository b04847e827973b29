"""Opens the data directories: locked, and found or made to belong to this node of this cluster.

One that the disk does not give is left out and the others go on (KIP-112); the one that holds the
metadata log has to be there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.primitives import ZERO_UUID, uuid_to_string
from barnabas.raft.metadata_log import METADATA_PARTITION
from barnabas.server.feature_check import check_features
from barnabas.storage.errors import InconsistentDirectoryError
from barnabas.storage.log_directory import LogDirectory, check_node
from barnabas.storage.meta_properties import MetaProperties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
    disk: Disk,
    configured: DirectoryPaths,
    node_id: int,
    rng: Rng,
    before_format: Callable[[str], None] = lambda _: None,
) -> DataDirectories:
    """Open what is there, formatted for a new cluster where all are empty.

    Args:
        disk: where the directories are.
        configured: their paths.
        node_id: of this node.
        rng: for the ids of new directories.
        before_format: told the path of the metadata log's directory if it is about to be formatted;
            it exists by then.

    Raises:
        DirectoryInUseError: another process has one.
        InconsistentDirectoryError: one belongs to another node, or they to several clusters.
        UnsupportedFeaturesError: the cluster is at feature levels that this node does not know.
        OSError: the directory of the metadata log, or every other one, cannot be used.
    """
    paths = list(dict.fromkeys(disk.absolute(path) for path in configured.logs))
    metadata_path = disk.absolute(configured.metadata or paths[0])
    wanted = list(dict.fromkeys([metadata_path, *paths]))
    # A directory that is refused stays as it is: first all are looked at.
    identities = _identities(disk, wanted)
    found = _check_identities(identities, node_id)
    check_features(disk, metadata_path)
    cluster_id = _settle_cluster_id(found, configured, metadata_path, rng)
    _check_metadata_place(disk, wanted, identities)
    if metadata_path in identities and identities[metadata_path] is None:
        disk.make_directory(metadata_path)
        before_format(metadata_path)
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
            f"{metadata_path} is empty, and cluster.id is not set. Give all nodes of a cluster the "
            f"same --set cluster.id=UUID at their first start; for a new cluster "
            f"`barnabas format --random-uuid` prints one"
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


def _identities(disk: Disk, paths: Sequence[str]) -> dict[str, MetaProperties | None]:
    """Whose each directory is, None for one that is not formatted; those that can be read."""
    found: dict[str, MetaProperties | None] = {}
    for path in paths:
        try:
            found[path] = MetaProperties.read(disk, path) if disk.exists(path) else None
        except OSError:
            # Said when it is opened.
            continue
    return found


def _check_identities(identities: Mapping[str, MetaProperties | None], node_id: int) -> str | None:
    """That all are of one cluster and of this node, each by an id of its own; which cluster."""
    formatted = {path: meta for path, meta in identities.items() if meta is not None}
    clusters = {meta.cluster_id: path for path, meta in formatted.items()}
    if len(clusters) > 1:
        listed = ", ".join(f"{path} to {cluster}" for cluster, path in clusters.items())
        raise InconsistentDirectoryError(
            f"the data directories belong to several clusters ({listed}); use those of one"
        )
    ids: dict[bytes, str] = {}
    for path, meta in formatted.items():
        check_node(path, meta, node_id)
        # One that was written before there were such ids gets its own when it is opened.
        other = path if meta.directory_id == ZERO_UUID else ids.setdefault(meta.directory_id, path)
        if other != path:
            raise InconsistentDirectoryError(
                f"{path} and {other} have the same directory.id: one is a copy of the other; "
                f"use one of them"
            )
    return next(iter(clusters), None)


def _check_metadata_place(
    disk: Disk, wanted: Sequence[str], identities: Mapping[str, MetaProperties | None]
) -> None:
    """Refuse what would begin the metadata anew under logs that are there, as Kafka does.

    Args:
        disk: where they are.
        wanted: all directories, that of the metadata log first.
        identities: of those that can be read.
    """
    metadata_path = wanted[0]
    for path in wanted[1:]:
        if path in identities and disk.exists(f"{path}/{METADATA_PARTITION.directory_name}"):
            raise InconsistentDirectoryError(
                f"{path} has a metadata log, and the one of this node is to be in {metadata_path}; "
                f"set metadata.log.dir={path}, or name it first in log.dirs"
            )
    formatted = [path for path, meta in identities.items() if meta is not None]
    if formatted and metadata_path in identities and identities[metadata_path] is None:
        raise InconsistentDirectoryError(
            f"{metadata_path}, which is to have the metadata log, is not formatted, and "
            f"{formatted[0]} is: is its disk mounted? If what it had is lost, `barnabas format "
            f"SERVER.PROPERTIES --cluster-id UUID --ignore-formatted` begins anew"
        )
