"""A directory as a store of segments, for example of a network file system (`file:///DIR`).

The objects of a cluster are in `DIR/CLUSTER_ID`. Each is written under a temporary name, synced and
renamed, so a name always stands for a whole object.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.remote.object_storage import ObjectStorage, always, names_in_order
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteFullError,
    RemoteMissingError,
    RemoteRefusedError,
    RemoteStorageError,
    RemoteUnavailableError,
    StoredObject,
)
from barnabas.storage.remote.segment_objects import (
    STORE_FILE,
    SUFFIXES,
    parse_partition_directory,
    parse_topic_directory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.runtime.disk import Disk

_TEMPORARY_SUFFIX = ".tmp"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
# A directory, a symbolic link or a pipe has the name of an object.
_NO_FILE = frozenset({errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EAGAIN})


class DirectoryStorage(ObjectStorage):
    """The store of one cluster in a directory."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        cluster_id: str,
        is_new: Callable[[], bool] = always,
    ) -> None:
        """Prepare the directory: create what is missing, and mark it if it is new.

        Args:
            disk: the disk with the directory and with the local segments.
            directory: where the objects of all clusters are.
            cluster_id: names the subdirectory of this cluster.
            is_new: returns whether a missing mark may be created.

        Raises:
            RemoteStorageError: the directory cannot be used.
        """
        # Directory of this cluster's objects.
        self.root = f"{directory}/{cluster_id}"
        objects = DirectoryObjects(disk, self.root)
        super().__init__(objects, cluster_id, is_new)
        if objects.size(STORE_FILE) is None:
            objects.make_root()
        self.open()


def clusters_in_directory(disk: Disk, directory: str) -> list[str]:
    """Return the ids of the clusters that have their objects in a directory, sorted.

    Raises:
        RemoteStorageError: the directory cannot be read.
    """
    with _translated(directory):
        names = disk.list(directory)
        return sorted(name for name in names if disk.exists(f"{directory}/{name}/{STORE_FILE}"))


class DirectoryLayout(NamedTuple):
    """Which of the names in a directory are those of a store."""

    # For each level below the root: returns None for directories that are not the store's.
    levels: Sequence[Callable[[str], object | None]]
    # Of the files.
    suffixes: tuple[str, ...]


_OWN_LAYOUT = DirectoryLayout((parse_topic_directory, parse_partition_directory), SUFFIXES)


class DirectoryObjects:
    """The files below a directory. The calls are those of `RemoteObjects`."""

    advice = "mount the file system of the remote store"

    def __init__(self, disk: Disk, root: str, layout: DirectoryLayout = _OWN_LAYOUT) -> None:
        self._disk = disk
        self._root = root
        self._levels = (*layout.levels, _is_never)
        self._suffixes = (*layout.suffixes, _TEMPORARY_SUFFIX)
        # Directories whose names survive a power failure. Worker threads only add to it.
        self._durable: set[str] = set()

    def make_root(self) -> None:
        """Create the directory of the cluster, which shows whether this is possible."""
        with _translated(self._root):
            self._make_directories(self._root)

    def place(self, name: str) -> str:
        """Return the path of an object."""
        return f"{self._root}/{name}"

    def put_file(self, name: str, local_path: str, size: int) -> None:
        """Store the first `size` bytes of a local file. The next `put` makes its name durable."""
        path = self.place(name)
        with _translated(path):
            self._make_directories(path.rpartition("/")[0])
            copied = self._disk.copy_range(local_path, path + _TEMPORARY_SUFFIX, size)
            if copied != size:
                raise RemoteDamagedError(
                    f"{local_path}: the segment has {copied} bytes instead of {size}"
                )
            self._disk.rename(path + _TEMPORARY_SUFFIX, path)

    def put(self, name: str, content: bytes) -> None:
        """Store an object durably, and the names of all objects in its directory."""
        path = self.place(name)
        with _translated(path):
            self._make_directories(path.rpartition("/")[0])
            self._disk.write_atomically(path, content)

    def get(self, name: str, start: int, end: int) -> memoryview:
        """Return the bytes [start, end) of an object, or fewer if it ends before."""
        path = self.place(name)
        with _translated(path):
            return memoryview(self._disk.read(path, start, end - start))

    def size(self, name: str) -> int | None:
        """Return the size of an object; None if it is missing."""
        path = self.place(name)
        try:
            with _translated(path):
                return self._disk.size(path)
        except RemoteMissingError:
            return None

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects of one directory, and their temporary files."""
        path = self.place(names[0])
        directory = path.rpartition("/")[0]
        with _translated(path):
            if not self._disk.exists(directory):
                return
            for name in names:
                self._remove(self.place(name))
                self._remove(self.place(name) + _TEMPORARY_SUFFIX)
            self._disk.sync_directory(directory)

    def list(self, directory: str, after: str) -> Iterator[StoredObject]:
        """Yield the objects below a directory in the order of their names, after a name."""
        prefix = f"{directory}/" if directory else ""
        is_directory = self._levels[min(prefix.count("/"), len(self._levels) - 1)]
        names = self._names(directory)
        below = {name for name in names if is_directory(name) is not None}
        files = [name for name in names if name not in below and name.endswith(self._suffixes)]
        wanted = names_in_order(list(below), prefix, after)
        for name in sorted(
            (*files, *wanted), key=lambda name: name + "/" if name in below else name
        ):
            if name in below:
                yield from self.list(prefix + name, after)
            elif prefix + name > after:
                found = self._object(prefix + name)
                if found is not None:
                    yield found

    def directories(self) -> Sequence[str]:
        """Return the names of the directories of topics."""
        return [name for name in self._names("") if parse_topic_directory(name) is not None]

    def close(self) -> None:
        """Do nothing: no file stays open between calls."""

    def _make_directories(self, path: str) -> None:
        """Create a directory and its parents so that they survive a power failure."""
        # A directory may exist because another thread, or a killed process, has not synced it yet.
        is_below = path.startswith(self._root)
        if (path in self._durable or not is_below) and self._disk.is_directory(path):
            return
        parent = path.rpartition("/")[0] or "/"
        self._make_directories(parent)
        self._disk.make_directory(path)
        self._disk.sync_directory(parent)
        if is_below:
            self._durable.add(path)

    def _remove(self, path: str) -> None:
        try:
            self._disk.remove(path)
        except FileNotFoundError:
            return

    def _object(self, name: str) -> StoredObject | None:
        path = self.place(name)
        try:
            with _translated(path):
                size, modified_ns = self._disk.stamp(path)
        except (RemoteMissingError, RemoteDamagedError):
            # Deleted meanwhile, or a symbolic link to itself.
            return None
        return StoredObject(name, size, modified_ns // 1_000_000)

    def _names(self, directory: str) -> Sequence[str]:
        """Return the names in a directory; none if it is absent or a file."""
        path = self.place(directory) if directory else self._root
        try:
            with _translated(path):
                return self._disk.list(path)
        except RemoteMissingError:
            if not self._disk.exists(self.place(STORE_FILE)):
                raise RemoteUnavailableError(
                    f"{self.place(STORE_FILE)} is missing: {self.advice}"
                ) from None
            return []


def _is_never(_: str) -> None:
    return None


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Raise the error of the store for each error of the file system."""
    try:
        yield
    except OSError as error:
        raise _error_of(error, path) from error


def _error_of(error: OSError, path: str) -> RemoteStorageError:
    place = error.filename or path
    reason = error.strerror or str(error)
    if error.errno in _MISSING:
        return RemoteMissingError(f"{place}: {reason}")
    if error.errno in _FULL:
        return RemoteFullError(f"{place}: {reason}: free space, or delete data by retention")
    if error.errno in _REFUSED:
        return RemoteRefusedError(
            f"{place}: {reason}: the user of the broker needs rights to read and write there"
        )
    if error.errno in _NO_FILE:
        return RemoteDamagedError(f"{place}: {reason}: it is not a file of the store")
    return RemoteUnavailableError(f"{place}: {reason}")
