"""Collects fetched records for the user, and moves positions (Kafka's FetchCollector).

Taking records moves the position of a partition. Apart from this, only a seek or a reset moves it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import CorruptRecordsError
from barnabas.client.fetch.record_set import FetchFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.consumer.assignment.topic_partition_state import TopicPartitionState
    from barnabas.client.fetch.fetch_buffer import FetchedSet
    from barnabas.client.fetch.fetched_batch import Piece
    from barnabas.client.fetch.fetcher import Fetcher
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["CollectedRecords", "FetchCollector"]


class CollectedRecords(NamedTuple):
    """The result of one `take`."""

    pieces: dict[TopicPartition, list[Piece]]
    # Whether a position moved; also true if it moved only over records that consumers do not see.
    has_moved: bool
    # Why a partition cannot be read further; then nothing was taken. None without a failure.
    failure: FetchFailure | None


class _Taken(NamedTuple):
    """A set that a `take` returned records of."""

    state: TopicPartitionState
    fetched: FetchedSet
    records: int


class FetchCollector:
    """Takes records from the fetcher's buffer, holds partitions back and gives records back.

    Args:
        fetcher: Fetches the assigned partitions.
        assignment: The assigned partitions, shared with the fetcher.
    """

    __slots__ = ("_assignment", "_buffer", "_corrupt", "_fetcher", "_last")

    def __init__(
        self, fetcher: Fetcher, assignment: Mapping[TopicPartition, TopicPartitionState]
    ) -> None:
        self._fetcher = fetcher
        self._buffer = fetcher.buffer
        self._assignment = assignment
        # The sets of the last `take`, in order. Cleared when records are given back or dropped.
        self._last: list[_Taken] = []
        # Errors of batches that could not be decoded; other threads may append.
        self._corrupt: deque[CorruptRecordsError] = deque()

    def take(self, limit: int) -> CollectedRecords:
        """Take up to `limit` records of assigned partitions, and move their positions."""
        self._last = []
        was_full = self._buffer.is_full
        collected = self._collect(limit)
        if was_full and not self._buffer.is_full:
            self._fetcher.send_fetches()
        return collected

    def _collect(self, limit: int) -> CollectedRecords:
        pieces: dict[TopicPartition, list[Piece]] = {}
        has_moved = False
        while limit > 0 and (first := self._buffer.first) is not None:
            state = self._assignment[first.tp]
            item = state.buffered[0]
            if isinstance(item, FetchFailure):
                if has_moved:
                    break
                self._buffer.pop()
                return CollectedRecords({}, False, item)
            try:
                taken = self._take_from(state, item, limit)
            except CorruptRecordsError as error:
                self._buffer.replace_first(FetchFailure(state.tp, error))
                continue
            has_moved = True
            count = sum(piece.stop - piece.start for piece in taken)
            limit -= count
            if taken:
                pieces.setdefault(state.tp, []).extend(taken)
                self._last.append(_Taken(state, item, count))
            if item.is_taken:
                self._buffer.pop()
        return CollectedRecords(pieces, has_moved, None)

    def _take_from(
        self, state: TopicPartitionState, fetched: FetchedSet, limit: int
    ) -> list[Piece]:
        """Take up to `limit` records of the first set, and move the position.

        Raises:
            CorruptRecordsError: The next batch has malformed bytes; the position has not moved.
        """
        if not fetched.has_begun:
            first_offset = fetched.record_set.first_offset
            assert first_offset == state.offset, (
                f"PositionsInOrder: {state.tp} first_offset={first_offset} offset={state.offset}"
            )
            self._buffer.begin(self._corrupt.append)
        taken = fetched.take(limit)
        state.advance(fetched.position, fetched.leader_epoch)
        return taken

    def pop_corrupt(self) -> list[CorruptRecordsError]:
        """Return and clear the errors of batches of the last `take` that could not be decoded."""
        found: list[CorruptRecordsError] = []
        while self._corrupt:
            error = self._corrupt.popleft()
            for state, fetched, _records in self._last:
                bounds = fetched.record_set
                is_inside = bounds.first_offset <= error.offset < bounds.end_offset
                if state.tp == error.partition and is_inside:
                    found.append(error)
                    break
        return found

    def give_back(self, counts: Mapping[TopicPartition, int]) -> None:
        """Undo the last `take` for the last `counts[tp]` records of each partition."""
        left = dict(counts)
        for state, fetched, count in reversed(self._last):
            back = min(count, left.get(state.tp, 0))
            if not back:
                continue
            left[state.tp] -= back
            fetched.give_back(back)
            state.advance(fetched.position, fetched.leader_epoch)
            if not state.buffered or state.buffered[0] is not fetched:
                self._buffer.put_back(state, fetched)
        self._last = []

    # Pause, revocation and seeks

    def pause(self, state: TopicPartitionState) -> None:
        """Neither fetch the partition nor return its records until `resume`."""
        was_held = state.is_held
        state.is_paused = True
        self._update_hold(state, was_held)

    def resume(self, state: TopicPartitionState) -> None:
        """Undo `pause`."""
        was_held = state.is_held
        state.is_paused = False
        self._update_hold(state, was_held)

    def revoke(self, state: TopicPartitionState) -> None:
        """Neither fetch the partition nor return its records: it is about to be taken away."""
        was_held = state.is_held
        state.is_revoking = True
        self._update_hold(state, was_held)

    def cancel_revocation(self, state: TopicPartitionState) -> None:
        """Undo `revoke`: the partition stays assigned."""
        was_held = state.is_held
        state.is_revoking = False
        self._update_hold(state, was_held)

    def _update_hold(self, state: TopicPartitionState, was_held: bool) -> None:
        if state.is_held and not was_held:
            self._buffer.hold(state)
        elif was_held and not state.is_held:
            self._buffer.release(state)
            self._fetcher.send_fetches()

    def drop(self, state: TopicPartitionState) -> None:
        """Discard the fetched records of the partition, and stop fetching it."""
        self._last = []
        self._fetcher.stop(state)
