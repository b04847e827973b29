"""A fetched record set of a partition, and how much of it was returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.errors import CorruptRecordsError
from barnabas.client.fetch.fetched_batch import BatchOrigin, FetchedBatch, Piece
from barnabas.client.fetch.record_decoding import visible_batches
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.fetch.record_set import RecordSet

__all__ = ["FetchedSet"]


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
