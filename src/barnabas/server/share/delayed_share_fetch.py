"""Fetches of share groups, which are pending until there are records (KIP-932).

Kafka's DelayedShareFetch. A fetch of many partitions takes several turns of the event loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.fetch_params import FetchPartitionData
from barnabas.replication.partition.results import failed_fetch
from barnabas.server.share.records.acquisition import BATCHES_MAX, cut, scan
from barnabas.server.share.records.share_records import FetchedRecords
from barnabas.storage.errors import StorageError
from barnabas.waiting.purgatory import DelayedOperation
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Sequence

    from barnabas.replication.partition.fetch_params import FetchParams, ReadLimit
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import FetchResult
    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.disk import FileSlice
    from barnabas.server.share.records.acquisition import AcquiredRange
    from barnabas.server.share.records.share_records import MemberRequest
    from barnabas.server.share.share_meters import FetchMeters, PartitionMeters
    from barnabas.server.share.share_partition import SharePartition
    from barnabas.storage.remote.remote_reader import Miss
    from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition

    Read = list[tuple[SharePartition, int, FetchResult]]
    ShareFetchResults = dict[TopicIdPartition, "ShareFetchResult"]
    Steps = Generator[None, None, None]

_log = logging.getLogger(__name__)

_NONE = ErrorCode.NONE


class ShareFetchResult(msgspec.Struct):
    """The result of a share fetch for one partition."""

    error: ErrorCode = _NONE
    # The record batches with acquired records. They may include records that are not acquired.
    records: FileSlice | bytes | memoryview = b""
    acquired: Sequence[AcquiredRange] = ()


class ShareFetchOptions(msgspec.Struct, frozen=True):
    """The parameters of a share fetch as a whole."""

    params: FetchParams
    member: MemberRequest
    records_max: int


class Allowed(msgspec.Struct):
    """Records and batches that a fetch may still acquire."""

    records: int
    batches: int = BATCHES_MAX

    def __bool__(self) -> bool:
        return self.records > 0 and self.batches > 0


class LogSource(Protocol):
    """The replicas of the broker."""

    def partition(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """Return the partition if it is online on this broker, else the error."""
        ...

    def read(
        self,
        params: FetchParams,
        partitions: list[tuple[TopicIdPartition, FetchPartitionData]],
        limit: ReadLimit | None = None,
    ) -> list[tuple[TopicIdPartition, FetchResult]]:
        """Read in order within the byte limit."""
        ...

    def load_remote(self, miss: Miss, on_done: Callable[[ErrorCode], None]) -> Cancellable:
        """Load what a read has missed in the remote tier; `on_done` is called later."""
        ...


class DelayedShareFetch(DelayedOperation):
    """Completes when enough bytes are available to acquire, or after an error.

    A. No partition can be read: all have errors. Or this broker no longer leads one of them.
    B. A read fails.
    C. A fetch offset is in an older segment than the end: the rest of that segment is returned.
    D. The readable bytes reach the request's minimum.

    A partition with the maximum number of records in flight is not read, unless some of them are
    available again. Records that only the remote tier has are loaded first. If that takes too long,
    the next fetch finds them in memory.
    """

    __slots__ = (
        "_accumulated",
        "_available",
        "_by_key",
        "_load_errors",
        "_loading",
        "_meters",
        "_on_done",
        "_on_expired",
        "_options",
        "_partitions",
        "_read",
        "_source",
        "errors",
    )

    def __init__(
        self,
        options: ShareFetchOptions,
        partitions: Sequence[SharePartition],
        source: LogSource,
        on_done: Callable[[ShareFetchResults], None],
        on_expired: Callable[[], None],
        meters: FetchMeters,
    ) -> None:
        """Create a pending fetch.

        Args:
            options: the request as a whole.
            partitions: the share partitions, in the order in which they are read.
            source: reads the log.
            on_done: gets the results of the partitions that the response includes.
            on_expired: called after a timeout.
            meters: measures this fetch.
        """
        super().__init__(options.params.max_wait_ms)
        self._options = options
        # The partitions that can be read, in the order in which they are read.
        self._partitions: dict[SharePartition, None] = {}
        # The partition by each key under which a purgatory watches this fetch.
        self._by_key: dict[Hashable, SharePartition] = {}
        # Number of readable bytes of each partition at its last read, and their sum.
        self._available: dict[SharePartition, int] = {}
        self._accumulated = 0
        self._source = source
        self._on_done = on_done
        self._on_expired = on_expired
        self._meters = meters
        # Errors of partitions that cannot be loaded.
        self.errors: dict[TopicIdPartition, ErrorCode] = {}
        # The read that has satisfied the condition.
        self._read: Read | None = None
        # Partitions whose records are being loaded from the remote tier, and failed loads.
        self._loading: set[SharePartition] = set()
        self._load_errors: dict[SharePartition, ErrorCode] = {}
        self.add(partitions)

    @property
    def keys(self) -> Iterable[Hashable]:
        """The keys under which a purgatory watches this fetch."""
        return self._by_key

    def add(self, partitions: Sequence[SharePartition]) -> list[Hashable]:
        """Add partitions, and return the keys under which a purgatory watches them."""
        keys: list[Hashable] = []
        for each in partitions:
            self._partitions[each] = None
            for key in (each.key, each.key.where.topic_partition):
                self._by_key[key] = each
                keys.append(key)
        return keys

    def refuse(self, partition: SharePartition, error: ErrorCode) -> None:
        """Give up a partition that cannot be loaded."""
        if partition in self._partitions:
            del self._partitions[partition]
            self.errors[partition.key.where] = error

    def try_complete(self) -> bool:
        """Check cases A to D."""
        fenced = [each for each in self._partitions if each.is_fenced]
        for each in fenced:
            self.refuse(each, each.fencing_error)
        if fenced or not self._partitions:
            return self.force_complete()
        self._available.clear()
        self._accumulated = 0
        try:
            read = self._read_acquirable(self._partitions, self._options.params.max_bytes)
            if not self._is_satisfied(read):
                self._meters.end_read([each.meters for each, _, _ in read])
                return False
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - only this request fails
            _log.exception("Unexpected error in a share fetch")
            return self.force_complete()
        self._read = read
        return self.force_complete()

    def try_complete_for(self, key: Hashable) -> bool:
        """Check cases A to D after a change to one partition.

        If each change caused a read of all partitions, a fetch that loads a thousand share
        partitions would need half a million reads.
        """
        return self._may_complete(self._by_key[key]) and self.try_complete()

    def _may_complete(self, changed: SharePartition) -> bool:
        """Whether a changed partition may complete the fetch. The others count as last read."""
        if changed not in self._partitions:
            return not self._partitions
        if changed.is_fenced:
            return True
        try:
            read = self._read_acquirable([changed], self._options.params.max_bytes)
            if self._is_satisfied(read):
                return True
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - `try_complete` reports it
            return True
        self._meters.end_read([each.meters for each, _, _ in read])
        return False

    def _read_acquirable(
        self, partitions: Iterable[SharePartition], bytes_max: int, limit: ReadLimit | None = None
    ) -> Read:
        """Read the partitions from which records may be acquired.

        Args:
            partitions: the partitions.
            bytes_max: limit for all of them, which is divided among them.
            limit: the limit of a response that is read in parts. None: these are all partitions.
        """
        asked = [
            (each, each.records.in_flight.next_fetch_offset())
            for each in partitions
            if each.records is not None and each.can_acquire()
        ]
        if not asked:
            return []
        self._meters.begin_read()
        max_bytes = bytes_max // len(asked)
        results = self._source.read(
            self._options.params,
            [(each.key.where, FetchPartitionData(at, max_bytes)) for each, at in asked],
            limit,
        )
        read: Read = []
        for (partition, at), (_, result) in zip(asked, results, strict=True):
            if result.remote is not None:
                result = self._load(partition, result, result.remote)
            read.append((partition, at, result))
        return read

    def _load(self, partition: SharePartition, result: FetchResult, miss: Miss) -> FetchResult:
        """Load what a read has missed in the remote tier. Return the result until then."""
        error = self._load_errors.get(partition)
        if error is not None:
            return failed_fetch(error)

        def on_loaded(failure: ErrorCode) -> None:
            self._loading.discard(partition)
            if failure is not _NONE:
                self._load_errors[partition] = failure
            if not self.is_completed:
                self.try_complete_for(partition.key)

        if partition not in self._loading:
            self._loading.add(partition)
            self._source.load_remote(miss, on_loaded)
        return result

    def _is_satisfied(self, read: Read) -> bool:
        for partition, _, result in read:
            if result.error is not _NONE or self._is_on_older_segment(partition, result):
                return True
            size = len(result.records)
            self._accumulated += size - self._available.get(partition, 0)
            self._available[partition] = size
        return bool(read) and self._accumulated >= self._options.params.min_bytes

    def _is_on_older_segment(self, partition: SharePartition, result: FetchResult) -> bool:
        position = result.position
        found = self._source.partition(partition.key.where.topic_partition)
        if isinstance(found, ErrorCode) or position is None or not position.is_known:
            return False
        end = found.exposed_end(self._options.params.isolation)
        return end.is_known and len(result.records) > 0 and position.on_older_segment(end)

    def on_complete(self) -> None:
        """Acquire the records that were read; after a timeout, those that can be read now."""
        results = {where: ShareFetchResult(error) for where, error in self.errors.items()}
        try:
            # The connection may keep this fetch, but not the records.
            read, self._read = self._read, None
            if read is None:
                read = self._read_acquirable(self._partitions, self._options.params.max_bytes)
            self._acquire(read, results, Allowed(self._options.records_max))
            self._meters.end_read([each.meters for each, _, _ in read])
            self._meters.complete(len(read))
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - only this request fails
            _log.exception("Unexpected error in a share fetch")
            for each in self._partitions:
                where = each.key.where
                results.setdefault(where, ShareFetchResult(ErrorCode.UNKNOWN_SERVER_ERROR))
        self._on_done(results)

    def on_expiration(self) -> None:
        """Count the timeout."""
        self._on_expired()

    def _acquire(self, read: Read, results: ShareFetchResults, allowed: Allowed) -> None:
        """Acquire records that were read in the same turn."""
        for partition, fetch_offset, result in read:
            where = partition.key.where
            made = results[where] = ShareFetchResult(result.error)
            if result.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                made.error = self._move_start(partition)
            if result.error is not _NONE or not allowed:
                continue
            try:
                last_needed = partition.last_acquirable(fetch_offset, allowed.records)
                batches = scan(result.records, last_needed, allowed.batches)
            except StorageError as error:
                made.error = error.error_code
                continue
            allowed.batches -= len(batches)
            fetched = FetchedRecords(fetch_offset, batches, result.aborted_transactions or ())
            acquired = partition.acquire(self._options.member, allowed.records, fetched)
            if acquired:
                made.records = cut(result.records, batches, acquired[0].first, acquired[-1].last)
                made.acquired = acquired
                allowed.records -= sum(each.last - each.first + 1 for each in acquired)

    def _move_start(self, partition: SharePartition) -> ErrorCode:
        """Move the start offset to the log start offset. The member fetches again."""
        found = self._source.partition(partition.key.where.topic_partition)
        if isinstance(found, ErrorCode):
            return found
        partition.move_log_start(found.log.log_start_offset)
        return _NONE


# Partitions that one step reads.
AT_ONCE = 100


class WideShareFetch(DelayedShareFetch):
    """Checks its partitions in steps. When it is complete, it reads and acquires in steps.

    The records of a partition are read and acquired in the same turn, so no lock is needed. Between
    the check and the acquisition, other members may acquire the records that completed the fetch.
    """

    __slots__ = ("_is_gone", "_run")

    def __init__(
        self,
        options: ShareFetchOptions,
        source: LogSource,
        on_done: Callable[[ShareFetchResults], None],
        on_expired: Callable[[], None],
        meters: FetchMeters,
        run: Callable[[Steps], None],
    ) -> None:
        """Create a fetch without partitions, see `DelayedShareFetch`. `add` adds them.

        Args:
            options: the request as a whole.
            source: reads the log.
            on_done: gets the results of the partitions that the response includes.
            on_expired: called after a timeout.
            meters: measures this fetch.
            run: runs steps over several turns.
        """
        super().__init__(options, (), source, on_done, on_expired, meters)
        self._run = run
        # Whether the client has disconnected. Never reset.
        self._is_gone = False

    def cancel(self) -> bool:
        """Stop, also between two steps: the client cannot process further records."""
        self._is_gone = True
        return super().cancel()

    def check(self) -> Steps:
        """Check cases A to D for every partition, in steps, after the last one was added."""
        read_meters: list[PartitionMeters] = []
        for some in in_parts(list(self._partitions), AT_ONCE):
            if self.is_completed:
                return
            if self._is_any_decided(some, read_meters):
                self.force_complete()
                return
            yield
        self._meters.end_read(read_meters)
        if not self._partitions:
            self.force_complete()

    def _is_any_decided(
        self, partitions: list[SharePartition], read_meters: list[PartitionMeters]
    ) -> bool:
        if any(each.is_fenced for each in partitions):
            return True
        try:
            read = self._read_acquirable(partitions, self._options.params.max_bytes)
            read_meters += [each.meters for each, _, _ in read]
            return self._is_satisfied(read)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the next read reports it
            return True

    def try_complete(self) -> bool:
        """Complete, since `try_complete_for` has checked the changed partition."""
        return self.force_complete()

    def on_complete(self) -> None:
        """Read and acquire in steps, and respond after the last one."""
        self._run(self._complete())

    def _complete(self) -> Steps:
        results: ShareFetchResults = {}
        allowed, limit = Allowed(self._options.records_max), self._options.params.read_limit()
        read_meters: list[PartitionMeters] = []
        for some in in_parts(list(self._partitions), AT_ONCE):
            if self._is_gone:
                return
            try:
                self._refuse_fenced(some)
                if allowed and limit.remaining > 0:
                    read = self._read_acquirable(some, limit.remaining, limit)
                    self._acquire(read, results, allowed)
                    read_meters += [each.meters for each, _, _ in read]
                else:
                    self._leave_out(some, results)
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - only this request fails
                _log.exception("Unexpected error in a share fetch")
                for each in some:
                    failed = ShareFetchResult(ErrorCode.UNKNOWN_SERVER_ERROR)
                    results.setdefault(each.key.where, failed)
            yield
        if self._is_gone:
            return
        self._meters.end_read(read_meters)
        self._meters.complete(len(read_meters))
        errors = {where: ShareFetchResult(error) for where, error in self.errors.items()}
        self._on_done({**errors, **results})

    def _refuse_fenced(self, partitions: list[SharePartition]) -> None:
        for each in partitions:
            if each.is_fenced:
                self.refuse(each, each.fencing_error)

    def _leave_out(self, partitions: list[SharePartition], results: ShareFetchResults) -> None:
        """Respond without records for partitions beyond the limits of the request."""
        for each in partitions:
            if each.can_acquire():
                results[each.key.where] = ShareFetchResult()
