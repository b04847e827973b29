"""A directory as a store of segments, for example of a network file system (`file:///DIR`).

The objects of a cluster are in `DIR/CLUSTER_ID`. Each is written under a temporary name, synced and
renamed, so a name always stands for a whole object. The manifest follows the other parts, and is
deleted before them.

`store.json` marks the directory. A directory whose mark is missing is not the store: probably its
file system is not mounted. All calls then fail as if the store did not answer. Otherwise an empty
mount point would look like a store that has lost all segments, and brokers would drop them.
"""

from __future__ import annotations

import errno
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteFullError,
    RemoteMissingError,
    RemoteRefusedError,
    RemoteStorageError,
    RemoteUnavailableError,
)
from barnabas.storage.remote.segment_objects import (
    INDEXES_BYTES_MAX,
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    MANIFEST_BYTES_MAX,
    MANIFEST_SUFFIX,
    STORE_FILE,
    SUFFIXES,
    TOPIC_BYTES_MAX,
    TOPIC_FILE,
    decode_custom,
    decode_indexes,
    decode_store,
    decode_topic,
    encode_custom,
    encode_indexes,
    encode_manifest,
    encode_store,
    encode_topic,
    parse_partition_directory,
    parse_segment_name,
    parse_topic_directory,
    segment_name,
    shortened_topic,
    sizes_of,
    stored_segment,
    topic_directory,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.runtime.disk import Disk
    from barnabas.storage.remote.remote_storage import (
        RemoteSegment,
        SegmentFiles,
        SegmentIndexes,
        StoredSegment,
        TopicDescription,
    )

_log = logging.getLogger(__name__)

_TEMPORARY_SUFFIX = ".tmp"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})


class DirectoryStorage:
    """The store of one cluster in a directory. The calls are those of `RemoteStorage`."""

    def __init__(self, disk: Disk, directory: str, cluster_id: str) -> None:
        """Prepare the directory: create what is missing, and mark it.

        Args:
            disk: the disk with the directory and with the local segments.
            directory: where the objects of all clusters are.
            cluster_id: names the subdirectory of this cluster.

        Raises:
            RemoteStorageError: the directory cannot be used.
        """
        self._disk = disk
        self._cluster_id = cluster_id
        # Directory of this cluster's objects.
        self.root = f"{directory}/{cluster_id}"
        self._mark = f"{self.root}/{STORE_FILE}"
        # Directories whose names survive a power failure. Worker threads only add to it.
        self._durable: set[str] = set()
        with _translated(self.root):
            if self._disk.exists(self._mark):
                self._check_mark()
                self._durable.add(self.root)
                return
            self._make_directories(self.root)
            self._disk.write_atomically(self._mark, encode_store(cluster_id))
        _log.info("Remote store created: directory=%s", self.root)

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes:
        """Store log, indexes and manifest, in this order; return the custom metadata."""
        path = self._path(segment)
        indexes = encode_indexes(files)
        sizes = sizes_of(files, indexes)
        self._need_store()
        with _translated(path):
            self._make_directories(path.rpartition("/")[0])
            self._copy_log(files, path + LOG_SUFFIX)
            # This syncs the directory too, so both names are durable before the manifest's.
            self._disk.write_atomically(path + INDEXES_SUFFIX, indexes)
            manifest = encode_manifest(segment, sizes, self._cluster_id)
            self._disk.write_atomically(path + MANIFEST_SUFFIX, manifest)
        return encode_custom(sizes)

    def read(self, segment: RemoteSegment, start: int, end: int) -> memoryview:
        """Return exactly the bytes [start, end) of the segment's log."""
        path = self._path(segment) + LOG_SUFFIX
        content = self._read(path, start, end - start)
        if len(content) != end - start:
            raise RemoteDamagedError(
                f"{path}: the object ends at {start + len(content)}, before byte {end}"
            )
        return memoryview(content)

    def read_indexes(self, segment: RemoteSegment) -> SegmentIndexes:
        """Return all indexes of the segment, with their checksum verified."""
        path = self._path(segment) + INDEXES_SUFFIX
        stored = decode_custom(segment.custom)
        expected = INDEXES_BYTES_MAX if stored is None else stored.indexes_size
        # One byte more than allowed shows that the object is too long.
        content = self._read(path, 0, min(expected, self._size(path) or 0) + 1)
        if stored is not None and len(content) != expected:
            raise RemoteDamagedError(f"{path}: the object does not have {expected} bytes")
        return decode_indexes(content, path)

    def size_of(self, segment: RemoteSegment) -> int | None:
        """Return the stored size of the log; None if a part is missing or incomplete."""
        path = self._path(segment)
        log_size, indexes_size, manifest_size = (self._size(path + suffix) for suffix in SUFFIXES)
        stored = decode_custom(segment.custom)
        if stored is not None and indexes_size != stored.indexes_size:
            indexes_size = None
        if None in (log_size, indexes_size, manifest_size):
            self._need_store()
            return None
        return log_size

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete the manifest, then the other parts, and what an interrupted copy has left."""
        path = self._path(segment)
        directory = path.rpartition("/")[0]
        self._need_store()
        with _translated(path):
            if not self._disk.exists(directory):
                return
            self._remove(path + MANIFEST_SUFFIX)
            self._disk.sync_directory(directory)
            for suffix in SUFFIXES:
                self._remove(path + suffix)
                self._remove(path + suffix + _TEMPORARY_SUFFIX)
            self._disk.sync_directory(directory)

    def list_segments(self, topic: str | None, after: str = "") -> Iterator[StoredSegment]:
        """Yield the segments that have a manifest, in the order of their names.

        A damaged manifest is logged, and its segment is left out.
        """
        for directory in self._topic_directories(topic, after):
            partitions = self._list(f"{self.root}/{directory}")
            for partition in _in_order(partitions, f"{directory}/", after):
                if parse_partition_directory(partition) is None:
                    continue
                for found in self._partition_segments(f"{directory}/{partition}", after):
                    if topic in (None, found.segment.topic):
                        yield found

    def write_topic(self, topic: TopicDescription) -> None:
        """Store the description of a topic; an older one is replaced."""
        directory = f"{self.root}/{topic_directory(topic.name, topic.topic_id)}"
        self._need_store()
        with _translated(directory):
            self._make_directories(directory)
            self._disk.write_atomically(f"{directory}/{TOPIC_FILE}", encode_topic(topic))

    def list_topics(self) -> Iterator[TopicDescription]:
        """Yield the descriptions of all topics; a damaged one is logged and left out."""
        for directory in self._topic_directories(None, ""):
            path = f"{self.root}/{directory}/{TOPIC_FILE}"
            try:
                found = decode_topic(self._read(path, 0, TOPIC_BYTES_MAX + 1), directory)
            except RemoteMissingError:
                continue
            except RemoteDamagedError as error:
                _log.warning("Description of a stored topic is damaged: %s", error)
                continue
            yield found

    def close(self) -> None:
        """Do nothing: no file stays open between calls."""

    def _path(self, segment: RemoteSegment) -> str:
        return f"{self.root}/{segment_name(segment)}"

    def _copy_log(self, files: SegmentFiles, path: str) -> None:
        copied = self._disk.copy_range(files.log_path, path + _TEMPORARY_SUFFIX, files.log_size)
        if copied != files.log_size:
            raise RemoteDamagedError(
                f"{files.log_path}: the segment has {copied} bytes instead of {files.log_size}"
            )
        self._disk.rename(path + _TEMPORARY_SUFFIX, path)

    def _make_directories(self, path: str) -> None:
        """Create a directory and its parents so that they survive a power failure."""
        # A directory may exist because another thread, or a killed process, has not synced it yet.
        is_below = path.startswith(self.root)
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

    def _read(self, path: str, start: int, size: int) -> bytes:
        try:
            with _translated(path):
                return self._disk.read(path, start, size)
        except RemoteMissingError:
            self._need_store()
            raise

    def _size(self, path: str) -> int | None:
        try:
            with _translated(path):
                return self._disk.size(path)
        except RemoteMissingError:
            return None

    def _list(self, path: str) -> list[str]:
        """Return the names in a directory; none if it is absent or a file."""
        try:
            with _translated(path):
                return self._disk.list(path)
        except RemoteMissingError:
            self._need_store()
            return []

    def _topic_directories(self, topic: str | None, after: str) -> Iterator[str]:
        for directory in _in_order(self._list(self.root), "", after):
            found = parse_topic_directory(directory)
            if found is not None and (topic is None or found[0] == shortened_topic(topic)):
                yield directory

    def _partition_segments(self, directory: str, after: str) -> Iterator[StoredSegment]:
        for file in self._list(f"{self.root}/{directory}"):
            name = f"{directory}/{file.removesuffix(MANIFEST_SUFFIX)}"
            if not file.endswith(MANIFEST_SUFFIX) or name <= after:
                continue
            if parse_segment_name(name) is None:
                continue
            path = f"{self.root}/{name}"
            log_size = self._size(path + LOG_SUFFIX)
            indexes_size = self._size(path + INDEXES_SUFFIX)
            try:
                manifest = self._read(path + MANIFEST_SUFFIX, 0, MANIFEST_BYTES_MAX + 1)
                found = stored_segment(name, manifest, log_size, indexes_size)
            except RemoteMissingError:
                # The segment was deleted meanwhile.
                continue
            except RemoteDamagedError as error:
                _log.warning("Manifest of a stored segment is damaged: %s", error)
                continue
            yield found

    def _need_store(self) -> None:
        """Raise RemoteUnavailableError if the directory has lost its mark."""
        with _translated(self._mark):
            if self._disk.exists(self._mark):
                return
        raise RemoteUnavailableError(
            f"{self._mark} is missing: mount the file system of the remote store, or restart the"
            " broker if the store was emptied on purpose"
        )

    def _check_mark(self) -> None:
        owner = decode_store(self._disk.read(self._mark), self._mark)
        if owner != self._cluster_id:
            raise RemoteRefusedError(
                f"{self.root} is the store of cluster {owner}, and not of {self._cluster_id}: give"
                " each cluster a directory of its own"
            )


def _in_order(names: list[str], prefix: str, after: str) -> list[str]:
    """Return the names of directories in the order of the objects in them.

    Args:
        names: of the directories.
        prefix: the path before these names.
        after: directories whose objects all come before this name are left out.
    """
    # "a/b" comes after "a-b/c", although "a" comes before "a-b".
    found = sorted(names, key=lambda name: name + "/")
    return [
        name
        for name in found
        if f"{prefix}{name}/" >= after or after.startswith(f"{prefix}{name}/")
    ]


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
    return RemoteUnavailableError(f"{place}: {reason}")
