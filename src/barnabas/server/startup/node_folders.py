"""The data directories of a node of several processes: what they contain, and their lock.

Each process has a folder in each data directory of its node. A directory that was formatted by one
process stays where it is, as that of the first broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.configs.node_keys import NodeDirectories, folder_name
from barnabas.storage.errors import DirectoryInUseError, InconsistentDirectoryError
from barnabas.storage.files.metadata_files import MetaProperties, is_formatted
from barnabas.storage.topic_partition import CLUSTER_METADATA, parse_directory_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.runtime.disk import Disk, FileLock

# The processes of the node lock their own folders by a file of another name.
LOCK_FILE = ".node.lock"
_KINDS = ("broker", "controller")


def read_node_directories(disk: Disk, directories: Sequence[str]) -> NodeDirectories:
    """Return the identities in the directories of a node.

    Raises:
        InconsistentDirectoryError: an identity cannot be read, or there are several clusters.
        OSError: a directory cannot be read.
    """
    clusters: dict[str, str] = {}
    broker_ids: set[int] = set()
    is_single = False
    for directory in directories:
        if not disk.exists(directory):
            continue
        own = MetaProperties.read(disk, directory)
        if own is not None:
            is_single = True
            clusters[own.cluster_id] = directory
        for kind, node_id in _folders(disk, directory):
            path = f"{directory}/{folder_name(kind, node_id)}"
            found = MetaProperties.read(disk, path)
            if found is None:
                continue
            clusters[found.cluster_id] = path
            if kind == "broker" and _has_partitions(disk, path):
                broker_ids.add(node_id)
    if len(clusters) > 1:
        listed = ", ".join(f"{path} to {cluster}" for cluster, path in clusters.items())
        raise InconsistentDirectoryError(
            f"the data directories of this node belong to several clusters ({listed}); use those "
            "of one cluster"
        )
    return NodeDirectories(is_single, frozenset(broker_ids), next(iter(clusters), None))


def _has_partitions(disk: Disk, folder: str) -> bool:
    """Return whether the folder of a broker has a partition that is not being deleted."""
    found = map(parse_directory_name, disk.list(folder))
    return any(each is not None and each != CLUSTER_METADATA for each in found)


def check_no_node(disk: Disk, directories: Sequence[str]) -> None:
    """Check that a single process may use data directories.

    Raises:
        InconsistentDirectoryError: a directory has the folders of a node of several processes.
    """
    for directory in directories:
        if not disk.is_directory(directory):
            continue
        for kind, node_id in _folders(disk, directory):
            folder = folder_name(kind, node_id)
            if is_formatted(disk, f"{directory}/{folder}"):
                raise InconsistentDirectoryError(
                    f"{directory} is the directory of a node of several processes (it has the "
                    f"folder {folder}); start it with --brokers, or use another data directory"
                )


def _folders(disk: Disk, directory: str) -> Iterator[tuple[str, int]]:
    """Yield the kind and id of each process with a folder in a directory."""
    for name in disk.list(directory):
        kind, dot, number = name.partition(".")
        if kind in _KINDS and dot and number.isascii() and number.isdecimal():
            yield kind, int(number)


def lock_node_directories(disk: Disk, directories: Sequence[str]) -> list[FileLock]:
    """Create and lock the directories of a node, against other nodes.

    Raises:
        DirectoryInUseError: another node uses a directory.
        OSError: a directory cannot be created or locked.
    """
    locks: list[FileLock] = []
    try:
        for directory in directories:
            disk.make_directory(directory)
            lock = disk.lock(f"{directory}/{LOCK_FILE}")
            if lock is None:
                raise DirectoryInUseError(
                    f"{directory} is used by another node; stop that node, or use another data "
                    "directory"
                )
            locks.append(lock)
    except BaseException:
        for each in locks:
            each.release()
        raise
    return locks
