"""Fetched output: of one partition, and of all partitions in the order in which it is returned.

A `FetchedSet` is a fetched record set and how much of it was returned. The `FetchState` of a
partition has the output, and what to fetch next. The `FetchBuffer` (Kafka's FetchBuffer) holds the
order of arrival and counts the bytes, so that fetching stops while too many are queued.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from barnabas.client.connections.metadata_cache import ZERO_ID
from barnabas.client.errors import CorruptRecordsError
from barnabas.client.fetch.fetched_batch import BatchOrigin, FetchedBatch, Piece
from barnabas.client.fetch.record_set import visible_batches
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.record import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.fetch.record_set import FetchFailure, RecordSet

__all__ = ["FetchBuffer", "FetchState", "FetchedSet"]

# An item of fetched output. A failure is always the last item of its partition.
Output: TypeAlias = "FetchedSet | FetchFailure"


class FetchedSet:
    """A fetched record set and how much of it was taken.

    Args:
        record_set: The fetched bytes and their offset range.
        epoch_before: Leader epoch of the record before the set; -1 if unknown.
    """

    __slots__ = (
        "_batches",
        "_epoch_before",
        "_index",
        "_taken",
        "has_begun",
        "record_set",
    )

    def __init__(self, record_set: RecordSet, epoch_before: int = -1) -> None:
        self.record_set = record_set
        self._epoch_before = epoch_before
        # Whether `begin` was called; it comes before the first `take`.
        self.has_begun = False
        # The visible batches; empty before `begin`.
        self._batches: list[FetchedBatch] = []
        # Index of the next batch, and how many of its records were taken. Moved by `take` and
        # `give_back`. Invariant: `_taken` is 0 or less than the count of the batch.
        self._index = 0
        self._taken = 0

    def begin(self, on_corrupt: Callable[[CorruptRecordsError], None]) -> None:
        """Split the record set into its visible batches.

        Args:
            on_corrupt: Called with the error of each batch that cannot be decoded.

        Raises:
            CorruptRecordsError: A transaction marker cannot be decoded.
        """
        assert not self.has_begun, self.record_set[:4]
        self.has_begun = True
        topic, partition, first, end, data, *_ = self.record_set
        tp = TopicPartition(topic, partition)
        try:
            spans = visible_batches(self.record_set)
        except CorruptBatchError as error:
            raise CorruptRecordsError(tp, first, str(error), end) from error
        origin = BatchOrigin(tp, on_corrupt)
        self._batches = [FetchedBatch(data, span, first, end, origin) for span in spans]

    @property
    def is_taken(self) -> bool:
        """Whether everything was taken."""
        return self.has_begun and self._index == len(self._batches)

    @property
    def position(self) -> int:
        """Offset of the next record to take; the end of the record set once all were taken.

        Raises:
            CorruptRecordsError: The next batch must be decoded first and has malformed bytes.
        """
        if self.is_taken:
            # Also skip control records, aborted records and compacted gaps at the end.
            return self.record_set.end_offset
        if self._taken:
            return self._batches[self._index].offset_after(self._taken)
        first = self.record_set.first_offset
        return max(first, self._batches[self._index - 1].span.next_offset) if self._index else first

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the last taken record; -1 if unknown."""
        if self.is_taken:
            return self.record_set.batches[-1].leader_epoch
        if self._taken:
            return self._batches[self._index].span.leader_epoch
        return (
            self._batches[self._index - 1].span.leader_epoch if self._index else self._epoch_before
        )

    def take(self, limit: int) -> list[Piece]:
        """Take up to `limit` records; invisible records are skipped.

        Raises:
            CorruptRecordsError: The next batch must be decoded first and has malformed bytes.
        """
        assert self.has_begun, self.record_set[:4]
        pieces: list[Piece] = []
        batches = self._batches
        while limit > 0 and self._index < len(batches):
            batch = batches[self._index]
            try:
                start, count = self._taken, batch.count
            except CorruptRecordsError:
                if pieces:
                    # Return the records before the batch first; the next call raises.
                    return pieces
                raise
            stop = min(count, start + limit)
            if stop > start:
                pieces.append(Piece(batch, start, stop))
                limit -= stop - start
            if stop == count:
                self._index += 1
                self._taken = 0
            else:
                self._taken = stop
        return pieces

    def give_back(self, count: int) -> None:
        """Undo `take` for the last `count` records."""
        while count > 0:
            if self._taken == 0:
                self._index -= 1
                assert self._index >= 0, (self.record_set[:4], count)
                self._taken = self._batches[self._index].count
            back = min(count, self._taken)
            self._taken -= back
            count -= back


class FetchState:
    """Fetch position, retry state, preferred replica and buffered output of one partition.

    `Fetcher` and `FetchBuffer` move the fields; a partition is not fetched before `start`.

    Args:
        tp: The partition.
        end: Exclusive end offset of a bounded read; None for no end.
    """

    __slots__ = (
        "attempts",
        "buffered",
        "end",
        "failing_since_ms",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "is_delayed",
        "is_stopped",
        "last_stable_offset",
        "leader_epoch",
        "preferred_replica",
        "preferred_until_ms",
        "starts",
        "topic_id",
        "tp",
    )

    def __init__(self, tp: TopicPartition, end: int | None = None) -> None:
        self.tp = tp
        self.end = end
        # Offset of the next fetch; -1 before the first `start`. Moved by `start`, by responses
        # (`on_fetched`) and back by `rewind`. Invariant: it is the end of the buffered sets.
        self.fetch_offset = -1
        # Leader epoch of the batch before `fetch_offset`; -1 if unknown. Moves with it.
        self.fetch_epoch = -1
        # Epoch of the leader with which the fetch offset is valid; -1 before the first fetch.
        # Moved by `start` and by the fetcher when metadata reports another leader.
        self.leader_epoch = -1
        # Id of the topic that the offsets belong to; all zero if unknown. Set with the offsets, or
        # else by the first successful fetch. A topic that is created again has another id.
        self.topic_id = ZERO_ID
        # Number of calls of `start`. A retry timer of an earlier start has no effect.
        self.starts = 0
        # Whether the partition is not fetched because it has no valid position, is read to its
        # end, has failed, or waits for the validation of its position. Cleared by `start`.
        self.is_stopped = True
        # Number of consecutive failed fetches, and the time of the first (ms, monotonic clock).
        self.attempts = 0
        self.failing_since_ms = 0.0
        # Whether a retry backoff is pending; then the partition is not fetched.
        self.is_delayed = False
        # Replica to fetch from, as named by the leader; -1 for the leader itself. Valid until
        # `preferred_until_ms` (monotonic clock).
        self.preferred_replica = -1
        self.preferred_until_ms = 0.0
        # Fetched sets that are not completely returned to the caller, in offset order. Added by
        # responses, removed when they are returned. Moved only by `FetchBuffer`.
        self.buffered: deque[Output] = deque()
        # High watermark and last stable offset of the last response; None if unknown.
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether the partition is neither fetched nor its output returned."""
        return False

    def is_of_other_topic(self, topic_id: bytes) -> bool:
        """Return whether the offsets belong to another topic id; False if an id is unknown."""
        return self.topic_id != topic_id and ZERO_ID not in (self.topic_id, topic_id)

    @property
    def is_fetchable(self) -> bool:
        """Whether the partition is fetched now."""
        return not (self.is_stopped or self.is_delayed or self.is_held)

    def start(self, offset: int, epoch: int = -1, leader_epoch: int = -1) -> None:
        """Start fetching at `offset`.

        Args:
            offset: The next offset to fetch.
            epoch: Leader epoch of the record before `offset`; -1 if unknown.
            leader_epoch: Epoch of the leader with which the offset is valid; -1 if unknown.
        """
        assert not self.buffered, (self.tp, offset, len(self.buffered))
        self.starts += 1
        self.fetch_offset = offset
        self.fetch_epoch = epoch
        self.leader_epoch = leader_epoch
        self.attempts = 0
        self.is_delayed = False
        self.preferred_replica = -1
        self.is_stopped = self.is_at_end

    @property
    def is_at_end(self) -> bool:
        """Whether a bounded read has fetched all its records."""
        return self.end is not None and self.fetch_offset >= self.end

    def on_fetched(self, record_set: RecordSet) -> FetchedSet:
        """Move the fetch offset to the end of a fetched set; return the set with a cursor."""
        last = record_set.batches[-1]
        assert record_set.first_offset == self.fetch_offset < last.next_offset, (
            f"PositionsInOrder: {self.tp} first_offset={record_set.first_offset} "
            f"fetch_offset={self.fetch_offset} next_offset={last.next_offset}"
        )
        fetched = FetchedSet(record_set, self.fetch_epoch)
        self.attempts = 0
        self.fetch_offset, self.fetch_epoch = last.next_offset, last.leader_epoch
        self.is_stopped = self.is_at_end
        return fetched

    def rewind(self, record_set: RecordSet) -> None:
        """Continue to fetch after `record_set`; the sets after it were discarded."""
        last = record_set.batches[-1]
        assert last.next_offset <= self.fetch_offset, (
            f"PositionsInOrder: {self.tp} next_offset={last.next_offset} "
            f"fetch_offset={self.fetch_offset}"
        )
        self.fetch_offset, self.fetch_epoch = last.next_offset, last.leader_epoch
        self.is_stopped = False


class FetchBuffer:
    """Order and size of the buffered output.

    Args:
        bytes_max: The size at which the buffer is full (bytes).
    """

    __slots__ = ("_bytes_max", "_queue", "queued_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # The partitions of the buffered items, in the order in which the items are returned.
        # Invariant: a partition has one entry per item of its `buffered`, or none while it is held.
        self._queue: deque[FetchState] = deque()
        # Bytes of the queued sets of which nothing was returned yet. Never negative.
        self.queued_bytes = 0

    def __bool__(self) -> bool:
        """Return whether there is an item to return."""
        return bool(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether no fetch may be sent because of the queued bytes."""
        return self.queued_bytes >= self._bytes_max

    @property
    def first(self) -> FetchState | None:
        """The partition whose first buffered item is returned next; None if there is none."""
        return self._queue[0] if self._queue else None

    def add(self, state: FetchState, fetched: FetchedSet) -> None:
        """Add a fetched set of a partition that is not held, after all other items."""
        assert not state.is_held, state.tp
        state.buffered.append(fetched)
        self._queue.append(state)
        self.queued_bytes += len(fetched.record_set.data)

    def add_failure(self, state: FetchState, failure: FetchFailure) -> None:
        """Add the failure that ends the fetched sets of a partition, after all other items."""
        state.buffered.append(failure)
        if not state.is_held:
            self._queue.append(state)

    def pop(self) -> Output:
        """Remove and return the first item."""
        item = self._queue.popleft().buffered.popleft()
        if isinstance(item, FetchedSet) and not item.has_begun:
            self._count(-len(item.record_set.data))
        return item

    def begin(self, on_corrupt: Callable[[CorruptRecordsError], None]) -> None:
        """Begin to return the records of the first item, a set; its bytes no longer count.

        Args:
            on_corrupt: Called with the error of each batch that cannot be decoded.

        Raises:
            CorruptRecordsError: A transaction marker cannot be decoded.
        """
        item = self._queue[0].buffered[0]
        assert isinstance(item, FetchedSet), item
        self._count(-len(item.record_set.data))
        item.begin(on_corrupt)

    def replace_first(self, failure: FetchFailure) -> None:
        """Replace the first item, a set that has begun, by a failure."""
        item = self._queue[0].buffered.popleft()
        assert not _queued_bytes(item), (failure.topic_partition, _queued_bytes(item))
        self._queue[0].buffered.appendleft(failure)

    def put_back(self, state: FetchState, item: FetchedSet) -> None:
        """Make a set that was returned the first item again."""
        assert item.has_begun, state.tp
        state.buffered.appendleft(item)
        if not state.is_held:
            self._queue.appendleft(state)

    def hold(self, state: FetchState) -> None:
        """Stop returning the items of a partition that is held now.

        Of the sets that have not begun, only the first is kept, so that many held partitions use
        little memory. The others are fetched again.
        """
        assert state.is_held, state.tp
        self._remove_entries(state)
        items = state.buffered
        begun = sum(map(_has_begun, items))
        if len(items) > begun + 1 and isinstance(first := items[begun], FetchedSet):
            state.buffered = deque(list(items)[: begun + 1])
            state.rewind(first.record_set)

    def release(self, state: FetchState) -> None:
        """Return the items of a partition that is no longer held."""
        assert not state.is_held, state.tp
        assert state not in self._queue, state.tp
        for item in reversed(state.buffered):
            if _has_begun(item):
                self._queue.appendleft(state)
        for item in state.buffered:
            if not _has_begun(item):
                self._queue.append(state)
                self._count(_queued_bytes(item))

    def drop(self, state: FetchState) -> None:
        """Discard the items of a partition."""
        if state.buffered:
            self._remove_entries(state)
            state.buffered.clear()

    def _remove_entries(self, state: FetchState) -> None:
        if state not in self._queue:
            return
        self._queue = deque(each for each in self._queue if each is not state)
        self._count(-sum(map(_queued_bytes, state.buffered)))

    def _count(self, size: int) -> None:
        self.queued_bytes += size
        assert self.queued_bytes >= 0, (self.queued_bytes, size)


def _has_begun(item: Output) -> bool:
    return isinstance(item, FetchedSet) and item.has_begun


def _queued_bytes(item: Output) -> int:
    """Return the bytes that an item adds to `queued_bytes` while it is queued."""
    if isinstance(item, FetchedSet) and not item.has_begun:
        return len(item.record_set.data)
    return 0
