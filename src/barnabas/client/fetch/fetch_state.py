"""The state of one partition as the fetcher sees it: what to fetch next, and the fetched output."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from barnabas.client.connections.metadata_cache import ZERO_ID
from barnabas.client.fetch.fetched_set import FetchedSet

if TYPE_CHECKING:
    from barnabas.client.fetch.record_set import FetchFailure, RecordSet
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["FetchState", "Output"]

# An item of fetched output. A failure is always the last item of its partition.
Output: TypeAlias = "FetchedSet | FetchFailure"


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
