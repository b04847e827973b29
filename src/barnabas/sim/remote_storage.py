"""A simulated remote store, which survives the hosts, and has the faults of real ones.

The objects are those of `DirectoryStorage`, on a disk of the store's own. Each broker has its own
view, because the copied log is on the broker's disk. Calls take no virtual time: the worker pools
of the hosts delay them (`SimWorkerPools.delay_max_ms`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import msgspec

from barnabas.protocol.primitives import uuid_to_string
from barnabas.sim.disk import SimDisk
from barnabas.storage.remote.directory_storage import DirectoryStorage
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteFullError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from barnabas.storage.remote.segment_objects import (
    LOG_SUFFIX,
    SUFFIXES,
    encode_custom,
    encode_indexes,
    segment_name,
    sizes_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.rng import Rng
    from barnabas.storage.remote.remote_storage import (
        RemoteSegment,
        RemoteStorage,
        SegmentFiles,
        SegmentIndexes,
        StoredObject,
        StoredSegment,
        TopicDescription,
    )

_DIRECTORY = "/store"
_CLUSTER_ID = "simulated"

T = TypeVar("T")


class StoreFaults(msgspec.Struct):
    """What goes wrong in a store. Tests change the fields at any time; all begin without faults."""

    # Probability that a call fails as if the store did not answer.
    unavailable: float = 0.0
    # Probability that a copy stores some of the objects, and fails.
    torn_copy: float = 0.0
    # Probability that a copy reports success and stores nothing.
    lie: float = 0.0
    # Probability that a read of a log has a flipped bit, or ends early.
    damaged_read: float = 0.0
    # Whether all calls are refused, as with wrong credentials.
    is_refusing: bool = False
    # Whether copies fail for lack of space.
    is_full: bool = False


class SimRemoteStorage:
    """A store of a simulated world. `on` returns the view of one broker."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self.rng = rng
        self.disk = SimDisk(clock, rng)
        self.faults = StoreFaults()
        # Number of calls that succeeded, by name of the method.
        self.calls: Counter[str] = Counter()
        # Bytes that all brokers have read of logs.
        self.bytes_read = 0
        self.objects = DirectoryStorage(self.disk, _DIRECTORY, _CLUSTER_ID)
        # Contents of the objects that are missing for a while, by name.
        self._hidden: dict[str, bytes] = {}

    def on(self, disk: Disk) -> RemoteStorage:
        """Return the store as seen by a broker with that disk."""
        return _View(self, disk)

    def names(self) -> list[str]:
        """Return the names of all objects of segments, sorted."""
        return sorted(self._names(self.objects.root, ""))

    def lose(self, segment: RemoteSegment, suffix: str = LOG_SUFFIX) -> None:
        """Remove one object of a segment."""
        self.disk.remove(self._path(segment) + suffix)

    def flip_bit(self, segment: RemoteSegment, suffix: str = LOG_SUFFIX) -> int:
        """Flip one random bit of an object; return the position of its byte."""
        return self.disk.flip_bit(self._path(segment) + suffix)

    def cut(self, segment: RemoteSegment, size: int, suffix: str = LOG_SUFFIX) -> None:
        """Shorten an object to `size` bytes."""
        self.disk.open(self._path(segment) + suffix, create=False).truncate(size)

    def hide(self, name: str) -> None:
        """Remove an object until `restore`, by its name from `names`."""
        path = f"{self.objects.root}/{name}"
        self._hidden[name] = self.disk.read(path)
        self.disk.remove(path)

    def restore(self) -> None:
        """Bring hidden objects back, unless their segments were deleted or copied again."""
        hidden, self._hidden = self._hidden, {}
        for name, content in hidden.items():
            path = f"{self.objects.root}/{name}"
            stem = path.rpartition(".")[0]
            if any(self.disk.exists(stem + suffix) for suffix in SUFFIXES):
                self.disk.write_atomically(path, content)

    def keep_parts(self, segment: RemoteSegment, count: int) -> None:
        """Remove all but the first `count` objects of a segment, in the order of a copy."""
        for suffix in SUFFIXES[count:]:
            self.lose(segment, suffix)

    def happens(self, probability: float) -> bool:
        """Return whether something with that probability happens now."""
        return probability > 0 and self.rng.random() < probability

    def check(self, call: str) -> None:
        """Raise the fault of a call, or count the call."""
        if self.faults.is_refusing:
            raise RemoteRefusedError(f"the simulated store refuses {call}")
        if self.happens(self.faults.unavailable):
            raise RemoteUnavailableError(f"the simulated store does not answer {call}")
        self.calls[call] += 1

    def _path(self, segment: RemoteSegment) -> str:
        return f"{self.objects.root}/{segment_name(segment)}"

    def _names(self, directory: str, prefix: str) -> Iterator[str]:
        for name in self.disk.list(directory):
            path = f"{directory}/{name}"
            if self.disk.is_directory(path):
                yield from self._names(path, f"{prefix}{name}/")
            elif name.endswith(SUFFIXES) and prefix.count("/") == 2:
                yield prefix + name


class _View:
    """The store as one broker sees it. The calls are those of `RemoteStorage`."""

    def __init__(self, store: SimRemoteStorage, disk: Disk) -> None:
        self._store = store
        self._disk = disk

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes:
        """Copy from the broker's disk to the store's disk."""
        store = self._store
        store.check("copy_segment")
        if store.faults.is_full:
            raise RemoteFullError("the simulated store is full")
        if store.happens(store.faults.lie):
            return encode_custom(sizes_of(files, encode_indexes(files)))
        # The store's disk has no file of the broker's disk.
        incoming = f"/incoming-{uuid_to_string(segment.id)}"
        store.disk.write_atomically(incoming, self._disk.read(files.log_path, 0, files.log_size))
        try:
            local = msgspec.structs.replace(files, log_path=incoming)
            custom = store.objects.copy_segment(segment, local)
        finally:
            store.disk.remove(incoming)
        if store.happens(store.faults.torn_copy):
            store.keep_parts(segment, store.rng.randint(0, len(SUFFIXES) - 1))
            raise RemoteUnavailableError("the simulated store stopped answering during a copy")
        return custom

    def read(self, segment: RemoteSegment, start: int, end: int) -> memoryview:
        """Return exactly the bytes [start, end) of the segment's log."""
        found = self._call("read", lambda: self._store.objects.read(segment, start, end))
        store = self._store
        store.bytes_read += len(found)
        if not store.happens(store.faults.damaged_read):
            return found
        if store.rng.random() < 0.5:
            raise RemoteDamagedError("the simulated store ends a log early")
        damaged = bytearray(found)
        damaged[store.rng.randint(0, len(damaged) - 1)] ^= 1
        return memoryview(bytes(damaged))

    def read_indexes(self, segment: RemoteSegment) -> SegmentIndexes:
        """Return all indexes of the segment."""
        return self._call("read_indexes", lambda: self._store.objects.read_indexes(segment))

    def size_of(self, segment: RemoteSegment) -> int | None:
        """Return the stored size of the log; None if any part is missing."""
        return self._call("size_of", lambda: self._store.objects.size_of(segment))

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete all objects of the segment."""
        self._call("delete_segment", lambda: self._store.objects.delete_segment(segment))

    def list_segments(self, topic: str | None, after: str = "") -> Iterator[StoredSegment]:
        """Yield the segments in the order of their names."""
        self._store.check("list_segments")
        return self._store.objects.list_segments(topic, after)

    def list_objects(self, after: str = "") -> Iterator[StoredObject]:
        """Yield all objects in the order of their names."""
        self._store.check("list_objects")
        return self._store.objects.list_objects(after)

    def check(self) -> None:
        """Check that this is the store of the cluster."""
        self._call("check", self._store.objects.check)

    def delete_objects(self, names: Sequence[str]) -> None:
        """Delete objects by their names."""
        self._call("delete_objects", lambda: self._store.objects.delete_objects(names))

    def write_topic(self, topic: TopicDescription) -> None:
        """Store the description of a topic."""
        self._call("write_topic", lambda: self._store.objects.write_topic(topic))

    def delete_topic(self, topic: str, topic_id: bytes) -> None:
        """Delete the description of a topic."""
        self._call("delete_topic", lambda: self._store.objects.delete_topic(topic, topic_id))

    def list_topics(self) -> Iterator[TopicDescription]:
        """Yield the descriptions of all topics."""
        self._store.check("list_topics")
        return self._store.objects.list_topics()

    def close(self) -> None:
        """Do nothing: the store outlives its brokers."""

    def _call(self, name: str, call: Callable[[], T]) -> T:
        self._store.check(name)
        return call()
