"""Cached indexes of remote segments, in files and in memory (Kafka's RemoteIndexCache, KIP-405).

The files have Kafka's names and formats: `<start offset>_<segment id>.index`, `.timeindex` and
`.txnindex`, in one directory. They outlast a restart. Memory has the indexes that reads use now.
Both parts are limited, and the least recently used indexes leave first.

Files are read and written in threads. All decisions are made on the loop.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.storage.remote.load_queue import Load, Waiters, queue_full, storage_error
from barnabas.storage.remote.loaded_indexes import LoadedIndexes
from barnabas.storage.remote.remote_storage import RemoteDamagedError
from barnabas.storage.topic_partition import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.runtime.clock import Cancellable, Clock, Timer
    from barnabas.runtime.disk import Disk
    from barnabas.storage.remote.load_queue import LoadQueue
    from barnabas.storage.remote.remote_storage import (
        RemoteSegment,
        RemoteStorage,
        RemoteStorageError,
    )

    OnIndexes = Callable[[LoadedIndexes | None, RemoteStorageError | None], None]

_log = logging.getLogger(__name__)

# The offset index is written last and deleted first: without it the other files have no meaning.
_SUFFIXES = (TXN_INDEX_SUFFIX, TIME_INDEX_SUFFIX, INDEX_SUFFIX)
_NAME = re.compile(r"(\d{1,19}_[A-Za-z0-9_-]{22})(\..+)")
# Time between two searches for indexes that were not used for long.
_EXPIRY_MS = 30_000.0
NO_EXPIRY = -1


class IndexLimits(NamedTuple):
    """Limits of the cached indexes, which may change at any time."""

    # Bytes of the files, and bytes in memory.
    file_bytes_max: int
    memory_bytes_max: int
    # Indexes that are not used for this time leave; -1 for no such limit.
    ttl_ms: int


class StoredIndexes(NamedTuple):
    """The files of one segment's indexes."""

    # Common part of the names of its files.
    prefix: str
    size: int


class IndexFiles:
    """The directory of cached indexes. All calls block, and are made in threads."""

    __slots__ = ("_directory", "_disk")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def scan(self) -> list[tuple[bytes, StoredIndexes]]:
        """Return the segments that have files, the least recently written first.

        Files of incomplete sets are deleted, as are the temporary ones.
        """
        disk = self._disk
        disk.make_directory(self._directory)
        sizes: dict[str, dict[str, int]] = {}
        for name in disk.list(self._directory):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            prefix, suffix = match.groups()
            if suffix in _SUFFIXES:
                sizes.setdefault(prefix, {})[suffix] = disk.size(self._path(prefix, suffix))
            else:
                disk.remove(f"{self._directory}/{name}")
        found: list[tuple[int, bytes, StoredIndexes]] = []
        for prefix, by_suffix in sizes.items():
            if INDEX_SUFFIX not in by_suffix or TIME_INDEX_SUFFIX not in by_suffix:
                self.remove([prefix])
                continue
            segment_id = uuid_from_string(prefix.partition("_")[2])
            modified_ms = disk.modified_ms(self._path(prefix, INDEX_SUFFIX))
            stored = StoredIndexes(prefix, sum(by_suffix.values()))
            found.append((modified_ms, segment_id, stored))
        return [each[1:] for each in sorted(found)]

    def read(self, segment: RemoteSegment) -> tuple[LoadedIndexes, StoredIndexes] | None:
        """Return the indexes of a segment from its files; None if they are absent or damaged."""
        prefix = prefix_of(segment)
        try:
            parts = [self._disk.read(self._path(prefix, suffix)) for suffix in _SUFFIXES]
            loaded = LoadedIndexes(segment, (parts[2], parts[1], parts[0]))
        except FileNotFoundError:
            return None
        except (OSError, RemoteDamagedError) as error:
            _log.warning("Cached remote index dropped: files=%s error=%s", prefix, error)
            self.remove([prefix])
            return None
        return loaded, StoredIndexes(prefix, sum(map(len, parts)))

    def write(self, segment: RemoteSegment, parts: tuple[bytes, bytes, bytes]) -> StoredIndexes:
        """Write the indexes of a segment: offset index, time index and transaction index.

        An index that lost its end in a power failure is only less precise, but an aborted
        transaction must not be lost. So only the transaction index is synced.
        """
        prefix = prefix_of(segment)
        for suffix, content in zip(_SUFFIXES, reversed(parts), strict=True):
            is_synced = suffix == TXN_INDEX_SUFFIX and bool(content)
            self._disk.write_atomically(self._path(prefix, suffix), content, sync=is_synced)
        return StoredIndexes(prefix, sum(map(len, parts)))

    def remove(self, prefixes: Iterable[str]) -> None:
        """Delete the files with these prefixes, as far as they exist."""
        for prefix in prefixes:
            for suffix in reversed(_SUFFIXES):
                path = self._path(prefix, suffix)
                if self._disk.exists(path):
                    self._disk.remove(path)

    def _path(self, prefix: str, suffix: str) -> str:
        return f"{self._directory}/{prefix}{suffix}"


def prefix_of(segment: RemoteSegment) -> str:
    """Return the common part of the names of a segment's index files."""
    return f"{segment.start_offset}_{uuid_to_string(segment.id)}"


class _Loading:
    """A load of one segment's indexes, and the calls that wait for it."""

    __slots__ = ("load", "waiters")

    def __init__(self, on_unwanted: Callable[[_Loading], None]) -> None:
        self.waiters: Waiters[LoadedIndexes | None, RemoteStorageError | None] = Waiters(
            partial(on_unwanted, self)
        )
        self.load: Load | None = None


class RemoteIndexCache:
    """The indexes of remote segments that reads have used lately."""

    __slots__ = (
        "_clock",
        "_expiry_entry",
        "_file_bytes",
        "_files",
        "_limits",
        "_loads",
        "_memory",
        "_memory_bytes",
        "_queue",
        "_storage",
        "_stored",
        "_timer",
        "_unwanted",
    )

    def __init__(
        self,
        storage: RemoteStorage,
        files: IndexFiles,
        queue: LoadQueue,
        clock: Clock,
        timer: Timer,
        limits: Callable[[], IndexLimits],
    ) -> None:
        """Create without indexes; `start` finds those of an earlier process.

        Args:
            storage: has the indexes of all segments.
            files: the directory of this cache.
            queue: runs the loads in threads.
            clock: measures how long indexes are not used.
            timer: limits how long they stay.
            limits: returns the current limits.
        """
        self._storage = storage
        self._files = files
        self._queue = queue
        self._clock = clock
        self._timer = timer
        self._limits = limits
        # Indexes in memory by segment id, the least recently used first, and their bytes.
        self._memory: OrderedDict[bytes, LoadedIndexes] = OrderedDict()
        self._memory_bytes = 0
        # Files by segment id, each with the time of its last use (monotonic ms), the least recently
        # used first. Has all files except unwanted ones.
        self._stored: OrderedDict[bytes, tuple[StoredIndexes, float]] = OrderedDict()
        self._file_bytes = 0
        # Prefixes of files that are to be deleted.
        self._unwanted: list[str] = []
        self._loads: dict[bytes, _Loading] = {}
        self._expiry_entry: Cancellable | None = None

    def start(self) -> None:
        """Find the files of an earlier process."""
        self._queue.add(Load(self._files.scan, self._on_scanned, _is_free))

    def close(self) -> None:
        """Call back no more."""
        for loading in self._loads.values():
            loading.waiters.clear()
        if self._expiry_entry is not None:
            self._expiry_entry.cancel()

    @property
    def memory_bytes(self) -> int:
        """Bytes of the indexes in memory."""
        return self._memory_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes of the cached files."""
        return self._file_bytes

    def get(self, segment_id: bytes) -> LoadedIndexes | None:
        """Return the indexes of a segment if they are in memory, and note the use."""
        found = self._memory.get(segment_id)
        if found is not None:
            self._memory.move_to_end(segment_id)
            self._touch(segment_id)
        return found

    def boundary(self, segment_id: bytes, first: int, last: int) -> int | None:
        """Return the largest known position of a batch in [first, last]; None without one."""
        found = self._memory.get(segment_id)
        return None if found is None else found.boundary(first, last)

    def load(self, segment: RemoteSegment, on_done: OnIndexes) -> Cancellable:
        """Load the indexes of a segment into memory.

        Args:
            segment: the segment.
            on_done: receives the indexes or the error; never called before this returns.
        """
        loading = self._loads.get(segment.id)
        if loading is None:
            loading = self._loads[segment.id] = _Loading(partial(self._abandon, segment.id))
            self._start(segment, loading)
        return loading.waiters.add(on_done)

    def _start(self, segment: RemoteSegment, loading: _Loading) -> None:
        known = self._memory.get(segment.id)
        if known is not None:
            self._timer.call_soon(partial(self._finish, segment.id, loading, known, None))
            return
        on_done = partial(self._on_loaded, segment, loading)
        loading.load = Load(partial(self._read, segment), on_done, _is_free)
        if not self._queue.add(loading.load):
            self._timer.call_soon(partial(self._finish, segment.id, loading, None, queue_full()))

    def _abandon(self, segment_id: bytes, loading: _Loading) -> None:
        """Remove a load that no call waits for from the queue, unless it has started."""
        if loading.load is not None and self._queue.remove(loading.load):
            del self._loads[segment_id]

    def forget(self, segment_ids: Iterable[bytes]) -> None:
        """Drop the indexes of segments that do not exist any more, or whose indexes are wrong."""
        for segment_id in segment_ids:
            self._drop_from_memory(segment_id)
            self._drop_files(segment_id)
        self._remove_unwanted()

    # In a thread.

    def _read(self, segment: RemoteSegment) -> tuple[LoadedIndexes, StoredIndexes | None]:
        cached = self._files.read(segment)
        if cached is not None:
            return cached
        found = self._storage.read_indexes(segment)
        parts = (found.offset_index, found.time_index, found.transaction_index)
        loaded = LoadedIndexes(segment, parts)
        try:
            return loaded, self._files.write(segment, parts)
        except OSError as error:
            _log.warning("Remote index not cached: file=%s error=%s", prefix_of(segment), error)
            return loaded, None

    # On the loop.

    def _on_scanned(
        self, found: list[tuple[bytes, StoredIndexes]] | None, error: BaseException | None
    ) -> None:
        if found is None:
            _log.warning("Cached remote indexes cannot be listed: error=%s", error)
            return
        now_ms = self._clock.monotonic_ms()
        later, self._stored = self._stored, OrderedDict()
        for segment_id, stored in found:
            if segment_id not in later:
                self._stored[segment_id] = (stored, now_ms)
                self._file_bytes += stored.size
        self._stored.update(later)
        self._shrink()

    def _on_loaded(
        self,
        segment: RemoteSegment,
        loading: _Loading,
        result: tuple[LoadedIndexes, StoredIndexes | None] | None,
        error: BaseException | None,
    ) -> None:
        if result is None:
            self._finish(segment.id, loading, None, storage_error(error))
            return
        loaded, stored = result
        self._drop_from_memory(segment.id)
        self._memory[segment.id] = loaded
        self._memory_bytes += loaded.size
        if stored is not None:
            self._add_files(segment.id, stored)
        self._shrink()
        self._finish(segment.id, loading, loaded, None)

    def _finish(
        self,
        segment_id: bytes,
        loading: _Loading,
        loaded: LoadedIndexes | None,
        error: RemoteStorageError | None,
    ) -> None:
        if self._loads.get(segment_id) is not loading:
            return
        del self._loads[segment_id]
        loading.waiters.call(loaded, error)

    def _touch(self, segment_id: bytes) -> None:
        entry = self._stored.get(segment_id)
        if entry is not None:
            self._stored[segment_id] = (entry[0], self._clock.monotonic_ms())
            self._stored.move_to_end(segment_id)

    def _add_files(self, segment_id: bytes, stored: StoredIndexes) -> None:
        before = self._stored.pop(segment_id, None)
        if before is not None:
            self._file_bytes -= before[0].size
        self._stored[segment_id] = (stored, self._clock.monotonic_ms())
        self._file_bytes += stored.size

    def _drop_from_memory(self, segment_id: bytes) -> None:
        loaded = self._memory.pop(segment_id, None)
        if loaded is not None:
            self._memory_bytes -= loaded.size

    def _drop_files(self, segment_id: bytes) -> None:
        entry = self._stored.pop(segment_id, None)
        if entry is not None:
            self._file_bytes -= entry[0].size
            self._unwanted.append(entry[0].prefix)

    def _shrink(self) -> None:
        """Drop the least recently used indexes beyond the limits, and those not used for long."""
        limits = self._limits()
        # The last one is in use.
        while self._memory_bytes > limits.memory_bytes_max and len(self._memory) > 1:
            self._drop_from_memory(next(iter(self._memory)))
        while self._file_bytes > limits.file_bytes_max and len(self._stored) > 1:
            self._drop_files(next(iter(self._stored)))
        if limits.ttl_ms != NO_EXPIRY:
            oldest_ms = self._clock.monotonic_ms() - limits.ttl_ms
            while self._stored:
                segment_id, (_, used_ms) = next(iter(self._stored.items()))
                if used_ms > oldest_ms:
                    break
                self._drop_from_memory(segment_id)
                self._drop_files(segment_id)
        self._remove_unwanted()
        if self._stored and self._expiry_entry is None:
            self._expiry_entry = self._timer.call_later(_EXPIRY_MS, self._expire)

    def _expire(self) -> None:
        self._expiry_entry = None
        self._shrink()

    def _remove_unwanted(self) -> None:
        if not self._unwanted:
            return
        prefixes, self._unwanted = self._unwanted, []

        def work() -> None:
            self._files.remove(prefixes)

        def on_done(_: None, error: BaseException | None) -> None:
            if error is not None:
                _log.warning("Cached remote indexes cannot be deleted: error=%s", error)

        if not self._queue.add(Load(work, on_done, _is_free)):
            self._unwanted = prefixes


def _is_free() -> bool:
    """Admit a load that needs no memory of the range cache."""
    return True
