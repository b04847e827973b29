"""One data directory (an entry of `log.dirs`): its lock, its identity and its checkpoints."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from barnabas.protocol.schema import ZERO_UUID
from barnabas.storage.errors import DirectoryInUseError, InconsistentDirectoryError
from barnabas.storage.files.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
)
from barnabas.storage.files.metadata_files import MetaProperties

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk, FileLock, FileSystem
    from barnabas.runtime.rng import Rng

LOCK_FILE = ".lock"


class LogDirectory:
    """A data directory, locked while it is open."""

    __slots__ = (
        "_disk",
        "_lock",
        "cleaner_offsets",
        "file_system",
        "high_watermarks",
        "is_cordoned",
        "is_loaded",
        "is_online",
        "log_start_offsets",
        "meta",
        "path",
        "recovery_points",
        "was_formatted",
        "was_stopped_cleanly",
    )

    def __init__(self, disk: Disk, path: str, lock: FileLock, meta: MetaProperties) -> None:
        self._disk = disk
        self._lock: FileLock | None = lock
        self.path = path
        self.meta = meta
        # Open from the start on, because it reports the failed writes since its opening. None if
        # each file has to be synced.
        self.file_system: FileSystem | None = disk.open_file_system(path)
        # False permanently after a file operation in the directory failed.
        self.is_online = True
        # Whether all its logs are open. Before that, its checkpoints must not be replaced.
        self.is_loaded = False
        # Whether it accepts no new logs (KIP-1066).
        self.is_cordoned = False
        # Whether it was empty when it was opened.
        self.was_formatted = False
        # Whether the clean shutdown marker existed.
        self.was_stopped_cleanly = False
        self.recovery_points = OffsetCheckpoint(disk, path, RECOVERY_POINTS)
        self.log_start_offsets = OffsetCheckpoint(disk, path, LOG_START_OFFSETS)
        self.high_watermarks = OffsetCheckpoint(disk, path, HIGH_WATERMARKS)
        self.cleaner_offsets = OffsetCheckpoint(disk, path, CLEANER_OFFSETS)

    @classmethod
    def open(cls, disk: Disk, path: str, node_id: int, cluster_id: str, rng: Rng) -> LogDirectory:
        """Lock a data directory and check its owner; format it if it is new.

        Raises:
            DirectoryInUseError: another process has locked it.
            InconsistentDirectoryError: it belongs to another node or cluster.
        """
        disk.make_directory(path)
        lock = disk.lock(f"{path}/{LOCK_FILE}")
        if lock is None:
            raise DirectoryInUseError(
                f"{path} is used by another process; stop that process, or use another "
                "data directory"
            )
        try:
            meta = MetaProperties.read(disk, path)
            is_new = meta is None
            if meta is None:
                meta = MetaProperties(cluster_id, node_id, rng.uuid())
                write_identity(disk, path, meta)
            check_node(path, meta, node_id)
            _check_cluster(path, meta, cluster_id)
            if meta.directory_id == ZERO_UUID:
                # Written by a Kafka version before 3.7 (KIP-858).
                meta = MetaProperties(cluster_id, node_id, rng.uuid())
                write_identity(disk, path, meta)
        except BaseException:
            lock.release()
            raise
        directory = cls(disk, path, lock, meta)
        directory.was_formatted = is_new
        return directory

    @property
    def id(self) -> bytes:
        """The directory id in the metadata (KIP-858)."""
        return self.meta.directory_id

    @property
    def checkpoints(self) -> tuple[OffsetCheckpoint, ...]:
        """The checkpoints that are applied when logs are opened."""
        return (self.recovery_points, self.log_start_offsets, self.high_watermarks)

    @property
    def is_writing_checkpoints(self) -> bool:
        """Whether a checkpoint is being written off the loop."""
        return any(each.is_writing for each in (*self.checkpoints, self.cleaner_offsets))

    def holds(self, path: str) -> bool:
        """Return whether a path is this directory or lies below it."""
        return path == self.path or path.startswith(self.path.rstrip("/") + "/")

    def close(self) -> None:
        """Release the lock and the descriptor of the file system."""
        if self.file_system is not None:
            self.file_system.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def write_identity(disk: Disk, path: str, meta: MetaProperties) -> None:
    """Write the owner of a data directory; synced when this returns."""
    meta.write(disk, path)
    # The directory itself may be new.
    with contextlib.suppress(PermissionError):
        disk.sync_directory(_parent(path))


def _parent(path: str) -> str:
    above, slash, _ = path.rstrip("/").rpartition("/")
    return above or slash or "."


def check_node(path: str, meta: MetaProperties, node_id: int) -> None:
    """Reject the data directory of another node.

    Raises:
        InconsistentDirectoryError: the node ids differ.
    """
    if meta.node_id != node_id:
        raise InconsistentDirectoryError(
            f"{path} belongs to node {meta.node_id}, but this is node {node_id}; set "
            f"node.id={meta.node_id} or use another data directory"
        )


def _check_cluster(path: str, meta: MetaProperties, cluster_id: str) -> None:
    if meta.cluster_id != cluster_id:
        raise InconsistentDirectoryError(
            f"{path} belongs to cluster {meta.cluster_id}, but this node belongs to "
            f"{cluster_id}; use another "
            f"data directory"
        )
