"""Fetches that wait for data (Kafka's DelayedFetch, with its completion cases A to H).

A fetch with many partitions takes several turns of the event loop. A fetch of a follower updates
the follower's state of a partition, and is reported to the checks of leadership, in the turn in
which the partition is read. A check that begins later does not count the fetch, since the follower
has sent it before.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.requests.delayed_writes import PartitionLookup
from barnabas.storage.results import FetchIsolation
from barnabas.waiting.purgatory import DelayedOperation
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable

    from barnabas.replication.partition.fetch_params import (
        FetchParams,
        FetchPartitionData,
        ReadLimit,
        SessionPartition,
    )
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import FetchResult
    from barnabas.replication.remote.remote_tier import RemoteReads
    from barnabas.replication.requests.delayed_remote_fetch import DelayedRemoteFetch
    from barnabas.storage.results import LogOffsetMetadata
    from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
    from barnabas.waiting.purgatory import Purgatory

    PartitionRequest = tuple[TopicIdPartition, FetchPartitionData]
    PartitionResult = tuple[TopicIdPartition, FetchResult]
    Steps = Generator[None, None, None]

_log = logging.getLogger(__name__)

# Cached members: access to an enum member costs 100 ns, as much as a function call.
_LOG_END = FetchIsolation.LOG_END
_NONE = ErrorCode.NONE

# Partitions that one step reads.
_AT_ONCE = 100
# Sentinel: the available data completes the fetch, even if it is below `min_bytes`.
_COMPLETE = None


class FetchSource(PartitionLookup, Protocol):
    """Reads the partitions of a fetch, perhaps in parts."""

    # None without tiered storage.
    remote: RemoteReads | None

    def read_first(
        self, params: FetchParams, partitions: list[PartitionRequest], limit: ReadLimit
    ) -> list[PartitionResult]:
        """Read and count requested partitions."""
        ...

    def take_follower_states(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        results: list[PartitionResult],
    ) -> list[TopicPartition]:
        """Update a follower's states, and return the partitions whose watermark moved."""
        ...

    def waiting(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        results: list[PartitionResult],
    ) -> list[WaitingPartition]:
        """Return the requested partitions with the results of their first read."""
        ...

    def end_first_read(
        self, params: FetchParams, results: list[PartitionResult], moved: list[TopicPartition]
    ) -> None:
        """Check what waits for the moved partitions, and for fetches of the read ones."""
        ...

    def read_again(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        limit: ReadLimit | None = None,
    ) -> list[PartitionResult]:
        """Read without updating follower states and without counting a fetch.

        Args:
            params: the request as a whole.
            partitions: the partitions to read, in order.
            limit: the limit of a response that is read in parts. None: these are all partitions.
        """
        ...

    def fetch_remotely(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        results: list[PartitionResult],
        on_done: Callable[[list[PartitionResult]], None],
    ) -> DelayedRemoteFetch:
        """Load what the first read of a fetch has missed in the remote tier, then respond."""
        ...

    def is_throttled(self, topic_partition: TopicPartition, replica_id: int) -> bool:
        """Whether the leader's replication quota withholds the partition from the follower."""
        ...

    def count_expired_fetch(self, from_follower: bool) -> None:
        """Count a fetch that timed out."""
        ...


class WaitingSession(Protocol):
    """A session with idle partitions."""

    # The session's pending fetch, which receives partitions that change.
    operation: DelayedFetch | None


class WaitingPartition(msgspec.Struct):
    """One partition of a pending fetch."""

    topic_id_partition: TopicIdPartition
    topic_partition: TopicPartition
    data: FetchPartitionData
    # Log position of the fetch offset, from the first read. None if unknown.
    position: LogOffsetMetadata | None
    # Number of readable bytes at the last check.
    available: int = 0
    # Result of the first read. It is still valid if it had no bytes and nothing has changed.
    first_result: FetchResult | None = None
    # Whether the partition has changed since the first read.
    is_stale: bool = False


class DelayedFetch(DelayedOperation):
    """Completes when a partition cannot wait, or when enough bytes are available.

    A. This broker is no longer the leader of a partition.
    B. This broker no longer has a replica of a partition.
    C. A partition no longer exists.
    D. A partition's log directory is offline.
    E. The request's leader epoch is fenced.
    F. The log was truncated below the fetch offset, or the fetch offset is in an older segment than
       the end. In the second case the remaining bytes of the older segment are returned at
       once, and the available bytes are not counted.
    G. The available bytes reach the request's minimum. Each partition counts up to its own maximum.
       Throttled partitions count zero.
    H. The request's leader epoch is unknown here, or the follower's log has diverged.

    The end is the log end offset, the high watermark or the last stable offset, by isolation level.
    Partitions without a known position are skipped until the timeout.

    A fetch of many partitions reads them in steps, and completes in steps. Each partition is
    watched from the turn in which it is read, so that no change is missed. If a change, the timeout
    or the limit of the purgatory completes the fetch before all partitions are read, the results
    follow after the last step.
    """

    __slots__ = (
        "_accumulated",
        "_by_key",
        "_idle",
        "_is_read",
        "_on_done",
        "_params",
        "_partitions",
        "_reads_to_log_end",
        "_remote_fetch",
        "_run",
        "_source",
        "_takes_any_record",
    )

    def __init__(
        self,
        params: FetchParams,
        partitions: list[WaitingPartition],
        source: FetchSource,
        on_done: Callable[[list[PartitionResult]], None],
        idle: WaitingSession | None = None,
        run: Callable[[Steps], None] | None = None,
    ) -> None:
        """Create a pending fetch.

        Args:
            params: the request as a whole.
            partitions: the partitions that were read, with the results of the first read.
            source: reads the partitions.
            on_done: gets one result per partition.
            idle: the session, which adds idle partitions when they change.
            run: runs steps over several turns. None: the fetch completes in one turn.
        """
        super().__init__(params.max_wait_ms)
        self._idle = idle
        if idle is not None:
            idle.operation = self
        self._params = params
        self._reads_to_log_end = params.isolation is _LOG_END
        # Whether a single record completes the fetch of a follower.
        self._takes_any_record = params.min_bytes <= 1 and params.is_from_follower
        self._partitions = partitions
        self._source = source
        self._on_done = on_done
        # The fetch that has taken over, to load what the first read has missed in the remote tier.
        self._remote_fetch: DelayedRemoteFetch | None = None
        self._run = run
        # Whether all partitions were read once. Never reset.
        self._is_read = run is None
        # Waiting partitions by key. Nearly always one per key.
        self._by_key: dict[TopicPartition, list[WaitingPartition]] = {}
        # Sum of `available` of all partitions.
        self._accumulated = 0
        for each in partitions:
            self._by_key.setdefault(each.topic_partition, []).append(each)
            self._accumulated += each.available

    def read(self, partitions: list[PartitionRequest], fetches: Purgatory) -> Steps:
        """Read the partitions in order, and complete or wait as in `ReplicaReads.fetch`.

        Args:
            partitions: the requested partitions, in the order of the request.
            fetches: holds the fetch while it waits.
        """
        params = self._params
        limit = params.read_limit()
        results: list[PartitionResult] = []
        size = 0
        # Whether these results are the response, and whether the watched partitions complete the
        # fetch, which then reads them again. Never reset.
        is_due = params.max_wait_ms <= 0 or params.min_bytes <= 0
        is_decided = False
        # Whether a result needs the remote tier: then the fetch waits for nothing else.
        is_missing = False
        for some in in_parts(partitions, _AT_ONCE):
            found = self._source.read_first(params, some, limit)
            moved = self._source.take_follower_states(params, some, found)
            results += found
            size += sum(len(result.records) for _, result in found)
            if self._source.remote is not None and has_missed(found):
                is_due = is_missing = True
            is_due = is_due or size >= params.min_bytes or completes_at_once(params, found)
            if not is_due:
                waiting = self._watch(some, found, fetches)
                # If no partition had bytes, all of them were read up to their end.
                is_decided = is_decided or (size > 0 and self._is_any_decided(waiting))
            # After the partitions are watched, since completed operations may append to them.
            self._source.end_first_read(params, found, moved)
            yield
        self._is_read = True
        if is_missing:
            super().cancel()
            self._remote_fetch = self._source.fetch_remotely(
                params, partitions, results, self._on_done
            )
        elif is_due:
            self.cancel()
            self._on_done(results)
        elif is_decided or self.is_completed:
            self.cancel()
            yield from self._finish()

    def _watch(
        self,
        partitions: list[PartitionRequest],
        results: list[PartitionResult],
        fetches: Purgatory,
    ) -> list[WaitingPartition]:
        waiting = self._source.waiting(self._params, partitions, results)
        for each in waiting:
            self._add(each)
        fetches.watch_more(self, [each.topic_partition for each in waiting])
        return waiting

    @property
    def is_ended(self) -> bool:
        """Whether the fetch is completed, and no other one has taken over."""
        remote = self._remote_fetch
        return self.is_completed if remote is None else remote.is_completed

    def cancel(self) -> bool:
        """Cancel without a response, also the fetch that has taken over."""
        remote = self._remote_fetch
        return super().cancel() if remote is None else remote.cancel()

    @property
    def follower_id(self) -> int:
        """Broker id of the follower that fetches, or the negative id of a consumer."""
        return self._params.replica_id

    def add(self, changed: SessionPartition) -> None:
        """Add a partition that was idle and has changed."""
        key = changed.where.topic_partition
        self._add(
            WaitingPartition(changed.where, key, changed.requested, changed.position, is_stale=True)
        )

    def _add(self, waiting: WaitingPartition) -> None:
        self._partitions.append(waiting)
        self._by_key.setdefault(waiting.topic_partition, []).append(waiting)
        self._accumulated += waiting.available

    def try_complete(self) -> bool:
        """Check cases A to H for every partition."""
        return self._is_any_decided(self._partitions) and self.force_complete()

    def try_complete_for(self, key: Hashable) -> bool:
        """Check cases A to H for the one partition that has changed.

        The other partitions were checked at their last change. If each change caused a check of all
        partitions, a fetch of a thousand partitions would need a thousand checks per append.
        """
        waiting = self._by_key[key]  # type: ignore[index]  # keys are of one type
        return self._is_any_decided(waiting) and self.force_complete()

    def _is_any_decided(self, partitions: list[WaitingPartition]) -> bool:
        """Whether the fetch is complete.

        An unexpected error completes it; the next read reports it.
        """
        try:
            return any(map(self._is_decided, partitions))
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - only this request fails
            _log.exception("Unexpected error in a waiting fetch")
            return True

    def _is_decided(self, waiting: WaitingPartition) -> bool:
        """Whether this partition completes the fetch."""
        waiting.is_stale = True
        if waiting.position is None:
            return False
        partition = self._source.partition(waiting.topic_partition)
        if isinstance(partition, ErrorCode):
            return True  # B, C, D
        data = waiting.data
        if self._takes_any_record and self._has_more(partition, waiting, waiting.position):
            return True  # G, or another case that the read reports
        params = self._params
        if not waiting.available and partition.has_nothing_for(params.replica_id, data):
            # The usual case after a move of the high watermark.
            return False
        error = partition.check_access(data.current_leader_epoch, params.fetch_only_leader)
        if error is not _NONE:
            return True  # A, E, H
        available = self._available(partition, waiting, waiting.position)
        if available is _COMPLETE:
            return True  # F
        self._accumulated += available - waiting.available
        waiting.available = available
        if self._accumulated >= params.min_bytes:
            return True  # G
        return data.last_fetched_epoch >= 0 and partition.has_diverged(data)  # H

    def _has_more(
        self, partition: Partition, waiting: WaitingPartition, position: LogOffsetMetadata
    ) -> bool:
        """Whether a follower's fetch returns at least one record.

        This is the usual case after an append, and cheaper than the number of bytes.
        """
        return (
            partition.log.log_end_offset > position.message_offset
            and position.is_known
            and waiting.data.max_bytes > 0
            and not self._source.is_throttled(waiting.topic_partition, self._params.replica_id)
        )

    def _available(
        self, partition: Partition, waiting: WaitingPartition, position: LogOffsetMetadata
    ) -> int | None:
        """Return the number of readable bytes, or _COMPLETE in case F."""
        log_end_offset = partition.log.log_end_offset
        if position.message_offset == log_end_offset and self._reads_to_log_end:
            # The usual case after a move of the high watermark.
            return 0
        end = partition.exposed_end(self._params.isolation)
        # Equal offsets may have positions in two segments if the log has just rolled. There is
        # nothing to read.
        if position.message_offset == end.message_offset:
            return 0
        if position.message_offset > log_end_offset:
            return _COMPLETE
        if not end.is_known or not position.is_known:
            return 0
        if end.on_older_segment(position):
            return _COMPLETE
        params = self._params
        is_throttled = params.is_from_follower and self._source.is_throttled(
            waiting.topic_partition, params.replica_id
        )
        if is_throttled:
            return 0
        if position.on_older_segment(end):
            return _COMPLETE
        # The value is negative while a new leader's high watermark is below the fetch offset.
        return max(0, min(end.bytes_since(position), waiting.data.max_bytes))

    def on_cancel(self) -> None:
        """Remove this fetch from its session."""
        if self._idle is not None and self._idle.operation is self:
            self._idle.operation = None

    def on_complete(self) -> None:
        """Read again the partitions that changed or had bytes, and complete with all results.

        While `read` is in progress, its last step completes the fetch.
        """
        self.on_cancel()
        if self._run is None:
            self._on_done(self._read_changed(self._partitions))
        elif self._is_read:
            self._run(self._finish())

    def _finish(self) -> Steps:
        limit = self._params.read_limit()
        results: list[PartitionResult] = []
        for some in in_parts(self._partitions, _AT_ONCE):
            results += self._read_changed(some, limit)
            yield
        self._on_done(results)

    def _read_changed(
        self, partitions: list[WaitingPartition], limit: ReadLimit | None = None
    ) -> list[PartitionResult]:
        """Return the results of partitions. Only those that changed or had bytes are read again."""
        results: list[PartitionResult | None] = []
        requested: list[PartitionRequest] = []
        for each in partitions:
            if each.is_stale or each.available or each.first_result is None:
                requested.append((each.topic_id_partition, each.data))
                results.append(None)
            else:
                results.append((each.topic_id_partition, each.first_result))
        read = iter(self._source.read_again(self._params, requested, limit))
        return [next(read) if each is None else each for each in results]

    def on_expiration(self) -> None:
        """Count the timeout, separately for followers and consumers."""
        self._source.count_expired_fetch(self._params.is_from_follower)


def completes_at_once(params: FetchParams, results: list[PartitionResult]) -> bool:
    """Whether enough bytes, an error, a diverging epoch or a redirect completes the fetch now."""
    size = 0
    for _, result in results:
        if (
            result.error is not _NONE
            or result.diverging_epoch is not None
            or result.preferred_read_replica >= 0
        ):
            return True
        size += len(result.records)
    return size >= params.min_bytes


def has_missed(results: list[PartitionResult]) -> bool:
    """Whether a partition needs records that must be loaded from the remote tier."""
    return any(result.remote is not None for _, result in results)
