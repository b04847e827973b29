"""Reads of the remote tier for fetches and for offset lookups of clients (KIP-405).

`RemoteReads` holds what all partitions of a broker share: the cached indexes and ranges, the meters
and the quota. It implements `RemoteTier`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.remote.store_health import FailureLimit, failure_kind, fix_of
from barnabas.replication.remote.unreadable_segments import UnreadableSegments
from barnabas.storage.errors import OffsetOutOfRangeError, StorageError
from barnabas.storage.remote.index_cache import IndexFiles, IndexLimits, RemoteIndexCache
from barnabas.storage.remote.load_queue import LoadQueue
from barnabas.storage.remote.range_cache import RangeCache, RangeLimits
from barnabas.storage.remote.remote_reader import Miss, RemoteLogReader
from barnabas.storage.remote.remote_storage import RemoteDamagedError, RemoteStorageError
from barnabas.storage.remote.time_search import find_by_timestamp
from barnabas.storage.results import LogOffsetMetadata, ReadResult
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.replication.remote.interfaces import RemoteMetadata
    from barnabas.replication.remote.remote_metrics import RemoteMetrics
    from barnabas.replication.remote.remote_quota import RemoteQuota
    from barnabas.runtime.clock import Cancellable, Clock, Timer
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.worker_pool import WorkerPool
    from barnabas.storage.remote.loaded_indexes import LoadedIndexes
    from barnabas.storage.remote.remote_reader import TieredLog
    from barnabas.storage.remote.remote_storage import RemoteStorage
    from barnabas.storage.remote.segment_states import RemoteLog
    from barnabas.storage.results import FetchIsolation
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.steps import OffLoop

_log = logging.getLogger(__name__)

_NONE = ErrorCode.NONE
_MS_PER_S = 1000.0


class RemoteReadLimits(msgspec.Struct):
    """Limits of reads. A dynamic change of the configuration sets a field."""

    # Directory of the cached index files. Never changes.
    index_directory: str
    index_file_bytes_max: int = 1 << 30
    # -1: no limit.
    index_ttl_ms: int = 900_000
    index_memory_bytes_max: int = 32 << 20
    read_cache_bytes_max: int = 128 << 20
    range_bytes_max: int = 4 << 20
    # Number of ranges.
    read_ahead: int = 1
    # How long a fetch waits for the tier, and a lookup whose request names no timeout.
    fetch_max_wait_ms: int = 500
    list_offsets_timeout_ms: int = 30_000


class RemoteReadDependencies(msgspec.Struct, frozen=True):
    """The collaborators of `RemoteReads`."""

    storage: RemoteStorage
    metadata: RemoteMetadata
    # Threads that read the store and the cached index files.
    pool: WorkerPool
    disk: Disk
    clock: Clock
    timer: Timer
    metrics: RemoteMetrics
    # Limits the bytes that are loaded.
    quota: RemoteQuota


class ReadPartition(Protocol):
    """The part of a partition that reads use."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The name of the partition."""
        ...

    @property
    def topic_id(self) -> bytes:
        """The id of the topic."""
        ...

    @property
    def log(self) -> TieredLog:
        """The log of this replica."""
        ...


class MetadataNotReadyError(StorageError):
    """This broker has not read all metadata of a partition's remote segments yet."""

    error_code = ErrorCode.REPLICA_NOT_AVAILABLE


class RemoteReads:
    """Reads records that only the remote tier has. All calls are on the loop, and none blocks."""

    __slots__ = (
        "_failures",
        "_metadata",
        "_queues",
        "_quota",
        "_reader",
        "limits",
        "metrics",
        "unreadable",
    )

    def __init__(self, dependencies: RemoteReadDependencies, limits: RemoteReadLimits) -> None:
        self.limits = limits
        self.metrics = dependencies.metrics
        self._metadata = dependencies.metadata
        self._quota = dependencies.quota
        storage, clock, timer = dependencies.storage, dependencies.clock, dependencies.timer
        # Separate queues: indexes need no memory of the ranges and do not wait for it.
        for_indexes = LoadQueue(dependencies.pool, timer)
        for_ranges = LoadQueue(dependencies.pool, timer)
        self._queues = (for_indexes, for_ranges)
        files = IndexFiles(dependencies.disk, limits.index_directory)
        indexes = RemoteIndexCache(storage, files, for_indexes, clock, timer, self._index_limits)
        ranges = RangeCache(storage, for_ranges, clock, timer, self._range_limits, indexes.boundary)
        ranges.observe(self._on_loaded)
        self._reader = RemoteLogReader(indexes, ranges)
        self._failures = FailureLimit(clock)
        # The segments whose records could not be read lately.
        self.unreadable = UnreadableSegments(clock)

    @property
    def cache_bytes(self) -> int:
        """Bytes of records in memory."""
        return self._reader.ranges.bytes_used

    @property
    def waiting_loads(self) -> int:
        """Number of loads that wait for memory or a thread."""
        return sum(len(queue) for queue in self._queues)

    def _index_limits(self) -> IndexLimits:
        limits = self.limits
        return IndexLimits(
            limits.index_file_bytes_max, limits.index_memory_bytes_max, limits.index_ttl_ms
        )

    def _range_limits(self) -> RangeLimits:
        limits = self.limits
        return RangeLimits(limits.read_cache_bytes_max, limits.range_bytes_max, limits.read_ahead)

    def start(self) -> None:
        """Find the index files that an earlier process has cached."""
        self._reader.indexes.start()

    def close(self) -> None:
        """Drop all loads; nothing is called back any more. Call it before the pool is closed."""
        for queue in self._queues:
            queue.close()
        self._reader.indexes.close()
        self._reader.ranges.close()

    def forget_segment(self, segment_id: bytes) -> None:
        """Drop the cached indexes and ranges of a segment that is deleted."""
        self._reader.indexes.forget([segment_id])
        self._reader.ranges.forget([segment_id])
        self.unreadable.discard(segment_id)

    # Reads.

    def read(
        self,
        partition: ReadPartition,
        offset: int,
        limit: tuple[int, bool],
        isolation: FetchIsolation,
    ) -> ReadResult | Miss | ErrorCode:
        """Return records from an offset, what must be loaded first, or the error.

        The result is empty, without a known position, while the quota is exceeded.

        Args:
            partition: the partition. The offset is below its local start.
            offset: the first offset to read.
            limit: bytes at most, and whether the first batch is returned even if it is larger.
            isolation: up to which offset records are visible.
        """
        if limit[0] <= 0:
            return _nothing(offset)
        remote = self._remote_log(partition)
        if remote is None:
            return MetadataNotReadyError.error_code
        counts = self.metrics.topics[partition.topic_partition.topic]
        try:
            found = self._reader.read(partition.log, remote, offset, limit, isolation)
        except OffsetOutOfRangeError:
            counts.fetch_requests += 1
            return ErrorCode.OFFSET_OUT_OF_RANGE
        except RemoteStorageError as error:
            segment = self._reader.segment_at(partition.log, remote, offset)
            if segment is not None:
                self.unreadable.add(segment, failure_kind(error))
            return self.failed(partition.topic_partition.topic, error)
        if isinstance(found, Miss):
            if not self._quota.is_exceeded:
                return found
            self._note_throttled()
            return _nothing(offset)
        counts.fetch_requests += 1
        counts.fetch_bytes += len(found.records)
        return found

    def load(self, miss: Miss, on_done: Callable[[ErrorCode], None]) -> Cancellable:
        """Load what a read has missed.

        Args:
            miss: the result of the read.
            on_done: receives NONE or the error; never called before this returns.
        """

        def on_loaded(error: RemoteStorageError | None) -> None:
            on_done(_NONE if error is None else self.failed(miss.segment.topic, error))

        return self.load_or_fail(miss, on_loaded)

    def load_or_fail(
        self, miss: Miss, on_done: Callable[[RemoteStorageError | None], None]
    ) -> Cancellable:
        """Load what a read has missed. `on_done` receives None or the exception."""
        segment = miss.segment

        def on_range(error: RemoteStorageError | None) -> None:
            if error is None:
                self.unreadable.discard(segment.id)
            else:
                self.unreadable.add(segment, failure_kind(error))
            on_done(error)

        def on_indexes(_: LoadedIndexes | None, error: RemoteStorageError | None) -> None:
            if error is not None:
                self.unreadable.add(segment, failure_kind(error))
            on_done(error)

        if miss.position is not None:
            return self._reader.ranges.load(segment, miss.position, miss.needed, on_range)

        return self._reader.indexes.load(segment, on_indexes)

    def offset_for_timestamp(
        self, partition: ReadPartition, timestamp: int
    ) -> Generator[Miss | OffLoop | None, Any, tuple[int, int, int] | None]:
        """Search in steps for the first record at or after a time: (timestamp, offset, epoch).

        A `Miss` must be loaded before the next step, an `OffLoop` runs elsewhere, None is a pause.

        Raises:
            StorageError: the metadata is not known yet, or the store failed.
        """
        remote = self._remote_log(partition)
        if remote is None:
            raise MetadataNotReadyError(f"{partition.topic_partition}: metadata is being read")
        return (yield from find_by_timestamp(self._reader, partition.log, remote, timestamp))

    def _remote_log(self, partition: ReadPartition) -> RemoteLog | None:
        name, index = partition.topic_partition
        return self._metadata.log_of(TopicIdPartition(partition.topic_id, name, index))

    # Meters.

    def _on_loaded(self, size: int, duration_ms: float) -> None:
        self._quota.record(size)
        self.metrics.reader_times.update(duration_ms)

    def _note_throttled(self) -> None:
        """Count a read that the quota refuses, with the time until the rate is at the limit."""
        quota = self._quota
        excess = quota.byte_rate() / max(1, quota.bytes_per_second) - 1.0
        quota.on_throttled(max(0.0, excess) * _MS_PER_S)

    def failed(self, topic: str, error: RemoteStorageError) -> ErrorCode:
        """Count and log a failed read; return its error code."""
        counts = self.metrics.topics[topic]
        counts.fetch_requests += 1
        counts.fetch_errors += 1
        self.metrics.failed_reads[failure_kind(error)] += 1
        earlier = self._failures.count(error)
        if earlier is not None:
            _log.warning(
                "Read of the remote tier failed: error=%s earlier_failures=%d fix=%s",
                error,
                earlier,
                fix_of(error),
            )
        if isinstance(error, RemoteDamagedError):
            return ErrorCode.CORRUPT_MESSAGE
        return error.error_code


def _nothing(offset: int) -> ReadResult:
    """Return an empty result without a position, which completes no fetch."""
    return ReadResult(b"", LogOffsetMetadata(offset))
