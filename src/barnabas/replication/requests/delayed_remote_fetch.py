"""Fetches that wait for the remote tier (Kafka's DelayedRemoteFetch, KIP-405, KIP-1018).

A fetch with at least one partition whose offset only the remote tier has waits for it, whatever its
maximum wait, its minimum bytes and its other partitions are. The other partitions keep the results
of their first read.

A load of the tier brings bytes into memory. The partition is then read again, which may ask for
another load: first come the indexes of a segment, then a range of its log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.fetch_params import ReadLimit
from barnabas.replication.partition.results import failed_fetch
from barnabas.replication.requests.delayed_writes import PartitionLookup
from barnabas.runtime.disk import FileSlice
from barnabas.waiting.purgatory import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
    from barnabas.replication.partition.results import FetchResult
    from barnabas.runtime.clock import Cancellable
    from barnabas.storage.remote.remote_reader import Miss
    from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
    from barnabas.waiting.purgatory import Purgatory

    PartitionRequest = tuple[TopicIdPartition, FetchPartitionData]
    PartitionResult = tuple[TopicIdPartition, FetchResult]
    Loader = Callable[[Miss, Callable[[ErrorCode], None]], Cancellable]

_log = logging.getLogger(__name__)

_NONE = ErrorCode.NONE
# Partitions of one fetch that load at the same time. The others follow.
_LOADS_AT_ONCE = 16
# Loads for one partition in one fetch. Then it returns no records, and the next fetch goes on.
_LOADS_MAX = 64


class RemoteSource(PartitionLookup, Protocol):
    """Reads partitions again, and loads from the remote tier."""

    def read_again(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        limit: ReadLimit | None = None,
    ) -> list[PartitionResult]:
        """Read without counting a fetch, see `FetchSource.read_again`."""
        ...

    def load_remote(self, miss: Miss, on_done: Callable[[ErrorCode], None]) -> Cancellable:
        """Load what a read has missed."""
        ...

    def count_expired_remote_fetch(self) -> None:
        """Count a fetch whose reads of the remote tier were not done in time."""
        ...


class RemotePart(msgspec.Struct):
    """A partition of a fetch that the remote tier must return."""

    # Position in the request and in the results.
    index: int
    # What the last read has missed.
    miss: Miss
    # What is left for it of the limits of the response.
    max_bytes: int
    min_one_batch: bool
    # The load in progress; None before it starts and after it has ended.
    load: Cancellable | None = None
    loads: int = 0
    # Whether its result is final.
    is_done: bool = False


class DelayedRemoteFetch(DelayedOperation):
    """Completes when all reads of the remote tier are done, or when one of them cannot go on.

    A. This broker is no longer the leader of a remote partition, or the leader epoch of the request
       is not the current one.
    B. This broker no longer has a replica of a remote partition.
    C. A remote partition no longer exists.
    D. The log directory of a remote partition is offline.
    E. Every read of the remote tier has returned records or an error.
    F. `remote.fetch.max.wait.ms` is over. The reads that are not done return no records.

    In the cases A to D, the partition is read again, which returns its error.
    """

    __slots__ = (
        "_local_bytes",
        "_on_done",
        "_params",
        "_parts",
        "_requested",
        "_results",
        "_source",
        "_unstarted",
    )

    def __init__(
        self,
        params: FetchParams,
        requested: list[PartitionRequest],
        results: list[PartitionResult],
        source: RemoteSource,
        on_done: Callable[[list[PartitionResult]], None],
        max_wait_ms: int,
    ) -> None:
        """Create a pending fetch.

        Args:
            params: the request as a whole.
            requested: the partitions.
            results: the results of their first read, some of which need the remote tier.
            source: reads and loads the partitions.
            on_done: gets one result per partition.
            max_wait_ms: how long the fetch waits for the remote tier.
        """
        super().__init__(max_wait_ms)
        self._params = params
        self._requested = requested
        self._results = results
        self._source = source
        self._on_done = on_done
        # The remote partitions, by name.
        self._parts: dict[TopicPartition, list[RemotePart]] = {}
        # Those whose first load has not started, in the reverse order of the request.
        self._unstarted: list[RemotePart] = []
        # Bytes of the local partitions.
        self._local_bytes = 0
        # As in the first read: each remote partition counts with its whole limit.
        left = params.read_limit()
        for index, (where, result) in enumerate(results):
            size = len(result.records)
            self._local_bytes += size
            if result.remote is not None:
                size = min(requested[index][1].max_bytes, left.remaining)
                part = RemotePart(index, result.remote, size, left.min_one_batch)
                self._parts.setdefault(where.topic_partition, []).append(part)
                self._unstarted.append(part)
            if size:
                left.remaining = max(0, left.remaining - size)
                left.min_one_batch = False
        self._unstarted.reverse()

    def start(self, purgatory: Purgatory) -> None:
        """Wait in the purgatory, and start the loads."""
        purgatory.watch(self, self._parts)
        if not self.is_completed:
            self._start_loads()

    def _start_loads(self) -> None:
        loading = sum(each.load is not None for parts in self._parts.values() for each in parts)
        while self._unstarted and loading < _LOADS_AT_ONCE:
            self._load(self._unstarted.pop())
            loading += 1

    def _load(self, part: RemotePart) -> None:
        part.loads += 1

        def on_loaded(error: ErrorCode) -> None:
            self._on_loaded(part, error)

        part.load = self._source.load_remote(part.miss, on_loaded)

    def _on_loaded(self, part: RemotePart, error: ErrorCode) -> None:
        part.load = None
        if self.is_completed:
            return
        try:
            if error is not _NONE:
                self._set_result(part, failed_fetch(error))
            else:
                self._read(part)
            if not part.is_done and part.loads < _LOADS_MAX:
                self._load(part)
                return
            part.is_done = True
            self._start_loads()
            self.try_complete()
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - only this request fails
            _log.exception("Unexpected error in a fetch from the remote tier")
            self._set_result(part, failed_fetch(ErrorCode.UNKNOWN_SERVER_ERROR))
            self.force_complete()

    def _read(self, part: RemotePart) -> None:
        """Read a partition again. The part is done unless something else must be loaded."""
        request = self._requested[part.index]
        limit = ReadLimit(part.max_bytes, part.min_one_batch)
        [(_, result)] = self._source.read_again(self._params, [request], limit)
        if result.remote is None:
            self._set_result(part, result)
        else:
            part.miss = result.remote

    def _set_result(self, part: RemotePart, result: FetchResult) -> None:
        part.is_done = True
        self._results[part.index] = (self._requested[part.index][0], result)

    def try_complete(self) -> bool:
        """Check case E."""
        if all(each.is_done for parts in self._parts.values() for each in parts):
            return self.force_complete()
        return False

    def try_complete_for(self, key: Hashable) -> bool:
        """Check cases A to D for a partition that has changed."""
        parts = self._parts[key]  # type: ignore[index]  # keys are of one type
        partition = self._source.partition(key)  # type: ignore[arg-type]  # keys are of one type
        has_failed = False
        for part in parts:
            if part.is_done:
                continue
            if not isinstance(partition, ErrorCode):
                epoch = self._requested[part.index][1].current_leader_epoch
                if partition.check_access(epoch, self._params.fetch_only_leader) is _NONE:
                    continue
            self._read(part)
            has_failed = True
        return has_failed and self.force_complete()

    def on_complete(self) -> None:
        """Respond with the results. Local records are read again, because time has passed."""
        self.on_cancel()
        try:
            self._read_local()
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the first results are valid too
            _log.exception("Unexpected error in a fetch from the remote tier")
        # The connection may keep this operation. The views of ranges must not stay with it.
        results, self._results = self._results, []
        self._on_done(results)

    def _read_local(self) -> None:
        """Read again what is to be sent from files, because a segment may have left meanwhile."""
        remote = {each.index for parts in self._parts.values() for each in parts}
        indexes = [
            index
            for index, (_, result) in enumerate(self._results)
            if index not in remote and isinstance(result.records, FileSlice)
        ]
        if not indexes:
            return
        limit = ReadLimit(self._local_bytes, not self._params.has_hard_byte_limit)
        requested = [self._requested[index] for index in indexes]
        read = self._source.read_again(self._params, requested, limit)
        for index, result in zip(indexes, read, strict=True):
            self._results[index] = result

    def on_cancel(self) -> None:
        """Cancel the loads. Those that run fill the memory for the next fetch."""
        self._unstarted.clear()
        for parts in self._parts.values():
            for part in parts:
                load, part.load = part.load, None
                if load is not None:
                    load.cancel()

    def on_expiration(self) -> None:
        """Count the timeout."""
        self._source.count_expired_remote_fetch()
