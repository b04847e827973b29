"""Fetched record sets between the fetcher and the user: taken in order, held back, given back.

Taking records moves the position of a partition. Apart from this, only a seek or a reset moves it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.consumer.fetched_set import FetchedSet, Piece
from barnabas.client.errors import CorruptRecordsError
from barnabas.client.fetcher import Fetcher, FetchFailure
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.consumer.position import PartitionPosition

__all__ = ["RecordBuffer", "Taken"]


class Taken(NamedTuple):
    """The result of one `take`."""

    pieces: dict[TopicPartition, list[Piece]]
    # Whether a position moved; also true if it moved only over records that consumers do not see.
    has_moved: bool
    # Why a partition cannot be read further; then nothing was taken. None without a failure.
    failure: FetchFailure | None


class RecordBuffer:
    """Fetched record sets that the user has not read completely."""

    __slots__ = ("_corrupt", "_fetcher", "_front", "_held", "_last")

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        # Sets to take before those of the fetcher: partly taken, given back or resumed.
        self._front: deque[FetchedSet | FetchFailure] = deque()
        # Sets of paused or revoking partitions, held until `resume`.
        self._held: dict[TopicPartition, list[FetchedSet]] = {}
        # The sets of the last `take`, in order, and how many records were taken of each.
        self._last: list[tuple[FetchedSet, int]] = []
        # Errors of batches that could not be decoded; other threads may append.
        self._corrupt: deque[CorruptRecordsError] = deque()

    @property
    def has_output(self) -> bool:
        """Whether `take` may return records or a failure."""
        return bool(self._front) or self._fetcher.has_output

    def take(self, limit: int, assignment: Mapping[TopicPartition, PartitionPosition]) -> Taken:
        """Take up to `limit` records of assigned partitions, and move their positions."""
        pieces: dict[TopicPartition, list[Piece]] = {}
        has_moved = False
        self._last = []
        while limit > 0:
            item = self._front.popleft() if self._front else self._next()
            if item is None:
                break
            if isinstance(item, FetchFailure):
                if has_moved:
                    self._front.appendleft(item)
                    break
                return Taken({}, False, item)
            position = assignment.get(item.tp)
            if position is None or position.offset != item.position:
                continue
            if not position.is_fetchable:
                self._held.setdefault(item.tp, []).append(item)
                continue
            item.begin(position.epoch)
            try:
                taken = item.take(limit)
            except CorruptRecordsError as error:
                self._front.appendleft(FetchFailure(item.tp, error))
                continue
            count = sum(piece.stop - piece.start for piece in taken)
            limit -= count
            position.advance(item.position, item.leader_epoch)
            has_moved = True
            if taken:
                pieces.setdefault(item.tp, []).extend(taken)
                self._last.append((item, count))
            if not item.is_taken:
                self._front.appendleft(item)
        return Taken(pieces, has_moved, None)

    def _next(self) -> FetchedSet | FetchFailure | None:
        item = self._fetcher.take()
        if item is None or isinstance(item, FetchFailure):
            return item
        try:
            return FetchedSet(item, self._corrupt.append)
        except CorruptBatchError as error:
            tp = TopicPartition(item.topic, item.partition)
            corrupt = CorruptRecordsError(tp, item.first_offset, str(error), item.end_offset)
            return FetchFailure(tp, corrupt)

    def corrupt_since(self) -> list[CorruptRecordsError]:
        """Return and clear the errors of batches of the last `take` that could not be decoded."""
        found: list[CorruptRecordsError] = []
        while self._corrupt:
            error = self._corrupt.popleft()
            for item, _ in self._last:
                bounds = item.record_set
                is_in_it = bounds.first_offset <= error.offset < bounds.end_offset
                if item.tp == error.partition and is_in_it:
                    found.append(error)
                    break
        return found

    def give_back(
        self,
        counts: Mapping[TopicPartition, int],
        assignment: Mapping[TopicPartition, PartitionPosition],
    ) -> None:
        """Undo the last `take` for the last `counts[tp]` records of each partition."""
        left = dict(counts)
        for item, count in reversed(self._last):
            back = min(count, left.get(item.tp, 0))
            if not back:
                continue
            left[item.tp] -= back
            item.give_back(back)
            position = assignment[item.tp]
            position.advance(item.position, item.leader_epoch)
            if not any(known is item for known in self._front):
                self._front.appendleft(item)
        self._last = []

    def pause(self, tp: TopicPartition) -> None:
        """Take nothing of the partition until `resume`."""
        mine = [s for s in self._front if isinstance(s, FetchedSet) and s.tp == tp]
        if mine:
            self._front = deque(item for item in self._front if item not in mine)
            self._held.setdefault(tp, []).extend(mine)
        self._fetcher.pause(tp)

    def resume(self, tp: TopicPartition) -> None:
        """Undo `pause`."""
        self._front.extendleft(reversed(self._held.pop(tp, [])))
        self._fetcher.resume(tp)

    def drop(self, tp: TopicPartition) -> None:
        """Discard the fetched records of the partition, and stop fetching it."""
        self._held.pop(tp, None)
        self._front = deque(item for item in self._front if _partition_of(item) != tp)
        self._last = []
        self._fetcher.remove((tp,))


def _partition_of(item: FetchedSet | FetchFailure) -> TopicPartition:
    return item.tp if isinstance(item, FetchedSet) else item.topic_partition
