"""Fetched bytes of a partition, split by batch headers and decoded on first access.

The batch header contains the number of records, so a poll that returns whole batches decodes
nothing. A batch that is returned in parts is decoded once. A batch with more than
`DECODED_RECORDS_MAX` records is decoded in parts, because a small batch may contain millions of
records.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import CorruptRecordsError
from barnabas.client.fetch.record_decoding import iter_span_records, span_records, visible_batches
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.batch import MAGIC_V2, read_header
from barnabas.record.columns import append_columns, uncompressed
from barnabas.record.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.client.fetch.record_scan import BatchSpan
    from barnabas.client.fetch.record_set import RecordSet
    from barnabas.record.compiled import CompiledRecord

__all__ = ["FetchedBatch", "FetchedSet", "Piece"]


# Batches with more records are decoded in parts. This number of decoded records takes about 2 MB.
DECODED_RECORDS_MAX = 10_000


class Origin(NamedTuple):
    """The partition of a batch, and a callback for decode errors."""

    tp: TopicPartition
    # Called with the error when a batch cannot be decoded, on the thread that accesses the batch.
    on_corrupt: Callable[[CorruptRecordsError], None]


class FetchedBatch:
    """One batch of a record set, limited to the requested offset range.

    Args:
        data: The bytes of the whole record set.
        span: Where the batch lies in `data`, and its header fields.
        first: First offset of the range.
        end: End offset of the range (exclusive).
        origin: Partition and error callback.
    """

    __slots__ = (
        "_count",
        "_end",
        "_first",
        "_is_whole",
        "_origin",
        "_read",
        "_records",
        "_unread",
        "data",
        "span",
    )

    def __init__(self, data: bytes, span: BatchSpan, first: int, end: int, origin: Origin) -> None:
        # Bytes of the whole record set; the batch begins at `span.start`.
        self.data = data
        self.span = span
        self._origin = origin
        # Only records with first <= offset < end are returned.
        self._first = first
        self._end = end
        inside = span.base_offset >= first and span.next_offset <= end
        # Whether all records are in the range and the header contains their number.
        self._is_whole = inside and span.record_count >= 0
        # The decoded records, cached by `records`; None before.
        self._records: Sequence[CompiledRecord] | None = None
        # Number of records in the range, once counted by decoding; None before.
        self._count: int | None = None
        # For batches that are decoded in parts: iterator over the records that follow, and the
        # number of records before them.
        self._unread: Iterator[CompiledRecord] | None = None
        self._read = 0

    @property
    def first_offset(self) -> int:
        """Lower bound of the offsets of the batch's records in the range."""
        return max(self._first, self.span.base_offset)

    @property
    def count(self) -> int:
        """Number of records in the range; decodes the batch only if the header is not sufficient.

        Raises:
            CorruptRecordsError: The batch must be decoded and has malformed bytes.
        """
        if self._is_whole:
            return self.span.record_count
        if not self._is_large:
            return len(self.records)
        if self._count is None:
            self._count = sum(1 for _ in self._iterate())
        return self._count

    @property
    def _is_large(self) -> bool:
        return self.span.magic == MAGIC_V2 and self.span.record_count > DECODED_RECORDS_MAX

    @property
    def is_decoded(self) -> bool:
        """Whether the decoded records are cached."""
        return self._records is not None

    @property
    def records(self) -> Sequence[CompiledRecord]:
        """The records in the range; decoded on first access, then cached.

        Raises:
            CorruptRecordsError: The batch has malformed bytes.
        """
        if self._records is None:
            self._records = self.decode()
        return self._records

    def part(self, start: int, stop: int) -> Sequence[CompiledRecord]:
        """Return the records with start <= index < stop.

        Raises:
            CorruptRecordsError: The batch has malformed bytes.
        """
        if self._records is not None or not self._is_large:
            return self.records[start:stop]
        if self._unread is None or self._read > start:
            self._unread, self._read = self._iterate(), 0
        found = list(islice(self._unread, start - self._read, stop - self._read))
        self._read = stop
        return found

    def _iterate(self) -> Iterator[CompiledRecord]:
        try:
            for record in iter_span_records(self.data, self.span):
                if self._is_whole or self._first <= record.offset < self._end:
                    yield record
        except CorruptBatchError as error:
            self._unread = None
            raise self.corrupt(error) from error

    def decode(self) -> Sequence[CompiledRecord]:
        """Return the records in the range without caching them, for callers that take them all.

        Raises:
            CorruptRecordsError: The batch has malformed bytes.
        """
        if self._records is not None:
            return self._records
        try:
            found = span_records(self.data, self.span)
        except CorruptBatchError as error:
            raise self.corrupt(error) from error
        if not self._is_whole:
            found = [r for r in found if self._first <= r.offset < self._end]
        return found

    def corrupt(self, cause: CorruptBatchError) -> CorruptRecordsError:
        """Return the error for a batch that cannot be decoded, and report it to the consumer."""
        tp, on_corrupt = self._origin
        behind = max(self.span.next_offset, self.first_offset + 1)
        error = CorruptRecordsError(tp, self.first_offset, str(cause), behind)
        on_corrupt(error)
        return error

    def offset_after(self, index: int) -> int:
        """Return the next offset to read after the first `index` records; `index` is at least 1.

        Raises:
            CorruptRecordsError: The batch must be decoded and has malformed bytes.
        """
        span = self.span
        if self._is_whole:
            if index == span.record_count:
                return span.next_offset
            if span.next_offset - span.base_offset == span.record_count:
                return span.base_offset + index
        offset = self.part(index - 1, index)[0].offset
        if not self._first <= offset < self._end:
            reason = f"a record's offset {offset} is outside [{self._first}, {self._end})"
            raise self.corrupt(CorruptBatchError(reason))
        return offset + 1


class Piece(NamedTuple):
    """Consecutive records of a batch: those with start <= index < stop."""

    batch: FetchedBatch
    start: int
    stop: int

    @property
    def records(self) -> Sequence[CompiledRecord]:
        """The decoded records.

        Raises:
            CorruptRecordsError: The batch has malformed bytes.
        """
        if self.start == 0 and self.stop == self.batch.count:
            return self.batch.decode()
        return self.batch.part(self.start, self.stop)

    def append_to(
        self, offsets: list[int], keys: list[bytes | None], values: list[bytes | None]
    ) -> None:
        """Append the offset, key and value of each record to the given lists.

        Raises:
            CorruptRecordsError: The batch has malformed bytes.
        """
        span = self.batch.span
        if self.stop - self.start == span.record_count and not self.batch.is_decoded:
            data = self.batch.data
            try:
                header = read_header(data, span.start)
                whole = uncompressed(data, span.start, header)
                append_columns(whole, header, offsets, keys, values)
            except CorruptBatchError as error:
                raise self.batch.corrupt(error) from error
            return
        records = self.records
        offsets += [record.offset for record in records]
        keys += [record.key for record in records]
        values += [record.value for record in records]


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
        origin = Origin(tp, on_corrupt)
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
