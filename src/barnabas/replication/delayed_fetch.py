"""Fetches that wait for data (Kafka's DelayedFetch, with its completion cases A to H)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.delayed_produce import PartitionLookup
from barnabas.replication.results import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from barnabas.waiting.delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.replication.fetch_params import FetchParams, FetchPartitionData
    from barnabas.replication.partition import Partition
    from barnabas.replication.results import FetchResult
    from barnabas.replication.session_partition import SessionPartition
    from barnabas.storage.offset_metadata import LogOffsetMetadata
    from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition

_log = logging.getLogger(__name__)

# Enough of it to complete whatever was asked for.
_COMPLETE = None


class FetchSource(PartitionLookup, Protocol):
    """Where a fetch that is complete reads again."""

    def read_again(
        self, params: FetchParams, partitions: list[tuple[TopicIdPartition, FetchPartitionData]]
    ) -> list[tuple[TopicIdPartition, FetchResult]]:
        """Read without taking in follower states and without counting a fetch."""
        ...

    def is_throttled(self, topic_partition: TopicPartition, replica_id: int) -> bool:
        """Whether the follower's bytes of that partition are over the leader's quota now."""
        ...

    def count_expired_fetch(self, from_follower: bool) -> None:
        """A fetch ran out of time."""
        ...


class WaitingSession(Protocol):
    """A follower's session, with partitions of which there is nothing to be said."""

    # Its fetch that waits, to which those are added that change.
    operation: DelayedFetch | None


class WaitingPartition(msgspec.Struct):
    """One partition of a waiting fetch."""

    topic_id_partition: TopicIdPartition
    topic_partition: TopicPartition
    data: FetchPartitionData
    # Where the fetch offset lies, from the first read; None if that is unknown.
    position: LogOffsetMetadata | None
    # Bytes that could be read when it was looked at last.
    available: int = 0
    # What the first read gave; it still holds if there were no bytes and nothing has changed.
    first_result: FetchResult | None = None
    # Something has changed since.
    is_stale: bool = False


class DelayedFetch(DelayedOperation):
    """Completes when one of its partitions cannot or need not wait, or enough has come together.

    A. This broker does not lead a partition any more.
    B. It has no replica of a partition any more.
    C. A partition does not exist any more.
    D. A partition's log directory is offline.
    E. The request's leader epoch is fenced.
    F. The log was truncated below the fetch offset, or the fetch offset lies in an older segment
       than the end: the rest of that segment is answered at once, the bytes between are not
       counted.
    G. The bytes that can be read reach the request's minimum, of each partition no more than its
       own maximum; throttled partitions give nothing.
    H. The request's leader epoch is unknown here, or the log has diverged from the asker's.

    The end is the log end, the high watermark or the last stable offset, by isolation. Partitions
    without a known position are skipped: their time will come.
    """

    __slots__ = (
        "_accumulated",
        "_by_key",
        "_on_done",
        "_params",
        "_partitions",
        "_quiet",
        "_source",
    )

    def __init__(
        self,
        params: FetchParams,
        partitions: list[WaitingPartition],
        source: FetchSource,
        on_done: Callable[[list[tuple[TopicIdPartition, FetchResult]]], None],
        quiet: WaitingSession | None = None,
    ) -> None:
        """Args:
        quiet: who adds partitions that were not looked at, should they change.
        """
        super().__init__(params.max_wait_ms)
        self._quiet = quiet
        if quiet is not None:
            quiet.operation = self
        self._params = params
        self._partitions = partitions
        self._source = source
        self._on_done = on_done
        # Nearly always one each.
        self._by_key: dict[TopicPartition, list[WaitingPartition]] = {}
        for each in partitions:
            self._by_key.setdefault(each.topic_partition, []).append(each)
        # Bytes of all partitions, as each was looked at last.
        self._accumulated = sum(each.available for each in partitions)

    def add(self, changed: SessionPartition) -> None:
        """A partition of which there was nothing to be said is no longer as it was."""
        key = changed.where.topic_partition
        waiting = WaitingPartition(
            changed.where, key, changed.asked, changed.position, is_stale=True
        )
        self._partitions.append(waiting)
        self._by_key.setdefault(key, []).append(waiting)

    def try_complete(self) -> bool:
        """Look at the cases A to H, of every partition."""
        return self._is_any_decided(self._partitions) and self.force_complete()

    def try_complete_for(self, key: Hashable) -> bool:
        """Look at the cases A to H, of the one partition that has changed.

        Those of the others were looked at when they changed: a fetch of a thousand partitions would
        cost a thousand looks else for each record that comes.
        """
        waiting = self._by_key[key]  # type: ignore[index]
        return self._is_any_decided(waiting) and self.force_complete()

    def _is_any_decided(self, partitions: list[WaitingPartition]) -> bool:
        """Whether the fetch is complete; after an unexpected error it is, and the read tells it."""
        try:
            return any(map(self._is_decided, partitions))
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - it is answered, others go on
            _log.exception("Unexpected error in a fetch that waits")
            return True

    def _is_decided(self, waiting: WaitingPartition) -> bool:
        """Whether the fetch is complete, as far as this partition tells."""
        waiting.is_stale = True
        if waiting.position is None:
            return False
        partition = self._source.partition(waiting.topic_partition)
        if isinstance(partition, ErrorCode):
            return True  # B, C, D
        data = waiting.data
        error = partition.check_access(data.current_leader_epoch, self._params.fetch_only_leader)
        if error is not ErrorCode.NONE:
            return True  # A, E, H
        available = self._available(partition, waiting, waiting.position)
        if available is _COMPLETE:
            return True  # F
        if data.last_fetched_epoch >= 0 and _has_diverged(partition, data):
            return True  # H
        self._accumulated += available - waiting.available
        waiting.available = available
        return self._accumulated >= self._params.min_bytes  # G

    def _available(
        self, partition: Partition, waiting: WaitingPartition, position: LogOffsetMetadata
    ) -> int | None:
        """Bytes that can be read, or _COMPLETE in case F."""
        end = partition.exposed_end(self._params.isolation)
        # Equal offsets may lie in two segments: the log has just rolled. Nothing is there to read.
        if position.message_offset == end.message_offset:
            return 0
        if position.message_offset > partition.log.log_end_offset:
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
        # Below zero while a new leader's high watermark lags behind the fetch offset.
        return max(0, min(end.bytes_since(position), waiting.data.max_bytes))

    def on_cancel(self) -> None:
        """The session has no fetch that waits any more."""
        if self._quiet is not None and self._quiet.operation is self:
            self._quiet.operation = None

    def on_complete(self) -> None:
        """Read again what has changed, or had anything, and answer with what there is."""
        self.on_cancel()
        results: list[tuple[TopicIdPartition, FetchResult] | None] = []
        asked: list[tuple[TopicIdPartition, FetchPartitionData]] = []
        for each in self._partitions:
            if each.is_stale or each.available or each.first_result is None:
                asked.append((each.topic_id_partition, each.data))
                results.append(None)
            else:
                results.append((each.topic_id_partition, each.first_result))
        read = iter(self._source.read_again(self._params, asked))
        self._on_done([next(read) if each is None else each for each in results])

    def on_expiration(self) -> None:
        """Followers' and consumers' expirations are counted apart."""
        self._source.count_expired_fetch(self._params.is_from_follower)


def _has_diverged(partition: Partition, data: FetchPartitionData) -> bool:
    end = partition.end_of_epoch(data.last_fetched_epoch)
    return (
        end.epoch == UNKNOWN_EPOCH
        or end.end_offset == UNKNOWN_OFFSET
        or end.epoch < data.last_fetched_epoch
        or end.end_offset < data.fetch_offset
    )
