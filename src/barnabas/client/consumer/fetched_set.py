"""Fetched bytes of a partition as they are handed out: cut by batch headers, decoded when touched.

How many records a batch holds its header tells, so a poll of some records decodes nothing. A batch
that is handed out in parts is decoded once; one with very many records is decoded part by part,
because a small batch may hold millions of them.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import CorruptRecordsError
from barnabas.client.record_decoding import iter_span_records, span_records, visible_batches
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.batch import MAGIC_V2, read_header
from barnabas.record.columns import append_columns, uncompressed
from barnabas.record.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.client.fetcher import RecordSet
    from barnabas.client.record_scan import BatchSpan
    from barnabas.record.compiled import CompiledRecord

__all__ = ["FetchedBatch", "FetchedSet", "Piece"]


# Batches with more records are decoded part by part. The records of such a batch take some 2 MB.
DECODED_RECORDS_MAX = 10_000


class Origin(NamedTuple):
    """Where batches are from."""

    tp: TopicPartition
    # Told, by whoever first looks at a batch that cannot be decoded, of the error he gets.
    on_corrupt: Callable[[CorruptRecordsError], None]


class FetchedBatch:
    """One batch of a record set, without what lies before or behind the bounds of that."""

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
        # The whole record set; the batch lies at `span.start`.
        self.data = data
        self.span = span
        self._origin = origin
        # Records with first <= offset < end are meant.
        self._first = first
        self._end = end
        inside = span.base_offset >= first and span.next_offset <= end
        # Whether all of its records are meant, and their number is known.
        self._is_whole = inside and span.record_count >= 0
        self._records: Sequence[CompiledRecord] | None = None
        # Number of records, where it had to be counted.
        self._count: int | None = None
        # Of a batch that is decoded part by part: the records that come next, and how many came
        # before them.
        self._unread: Iterator[CompiledRecord] | None = None
        self._read = 0

    @property
    def first_offset(self) -> int:
        """No record before this one is meant."""
        return max(self._first, self.span.base_offset)

    @property
    def count(self) -> int:
        """Number of records; decodes only where the header does not tell."""
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
        """Whether `records` was asked for before."""
        return self._records is not None

    @property
    def records(self) -> Sequence[CompiledRecord]:
        """The records, decoded at the first look.

        Raises:
            CorruptRecordsError: malformed bytes.
        """
        if self._records is None:
            self._records = self.decode()
        return self._records

    def part(self, start: int, stop: int) -> Sequence[CompiledRecord]:
        """The records from index `start` to `stop`, which is exclusive.

        Raises:
            CorruptRecordsError: malformed bytes.
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
        """The records, decoded anew: for who takes them all, and keeps what he wants of them.

        Raises:
            CorruptRecordsError: malformed bytes.
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
        """What whoever looks at the batch gets; the consumer is told as well."""
        tp, on_corrupt = self._origin
        behind = max(self.span.next_offset, self.first_offset + 1)
        error = CorruptRecordsError(tp, self.first_offset, str(cause), behind)
        on_corrupt(error)
        return error

    def offset_after(self, index: int) -> int:
        """Where reading goes on once the first `index` records, at least one, were read."""
        span = self.span
        if self._is_whole:
            if index == span.record_count:
                return span.next_offset
            if span.next_offset - span.base_offset == span.record_count:
                return span.base_offset + index
        return self.part(index - 1, index)[0].offset + 1


class Piece(NamedTuple):
    """Consecutive records of a batch, by index."""

    batch: FetchedBatch
    start: int
    stop: int

    @property
    def records(self) -> Sequence[CompiledRecord]:
        """The records, decoded."""
        if self.start == 0 and self.stop == self.batch.count:
            return self.batch.decode()
        return self.batch.part(self.start, self.stop)

    def append_to(
        self, offsets: list[int], keys: list[bytes | None], values: list[bytes | None]
    ) -> None:
        """Append offset, key and value of each record.

        Raises:
            CorruptRecordsError: malformed bytes.
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
    """A record set on its way to the user.

    Attributes:
        position: offset behind what was taken; the record set's end once all was.
        leader_epoch: of the record before it, -1 if not known.
    """

    __slots__ = (
        "_batches",
        "_epoch_before",
        "_index",
        "_taken",
        "leader_epoch",
        "position",
        "record_set",
        "tp",
    )

    def __init__(
        self,
        record_set: RecordSet,
        on_corrupt: Callable[[CorruptRecordsError], None] = lambda _error: None,
    ) -> None:
        """Cut a record set; `on_corrupt` is told of batches that cannot be decoded.

        Raises:
            CorruptBatchError: a transaction's marker cannot be read.
        """
        self.record_set = record_set
        self.tp = TopicPartition(record_set.topic, record_set.partition)
        first, end = record_set.first_offset, record_set.end_offset
        origin = Origin(self.tp, on_corrupt)
        self._batches = [
            FetchedBatch(record_set.data, span, first, end, origin)
            for span in visible_batches(record_set)
        ]
        # The batch that is next, and how many of its records were taken.
        self._index = 0
        self._taken = 0
        self.position = first
        self._epoch_before = self.leader_epoch = -1

    def begin(self, leader_epoch: int) -> None:
        """Note the leader epoch of the record before the first, if nothing was taken yet."""
        if not self._index and not self._taken:
            self._epoch_before = self.leader_epoch = leader_epoch

    @property
    def is_taken(self) -> bool:
        """Whether nothing is left."""
        return self.position == self.record_set.end_offset

    def take(self, limit: int) -> list[Piece]:
        """Up to `limit` records; moves the position, also over what no consumer sees.

        Raises:
            CorruptRecordsError: the next batch has to be decoded for that, and cannot be.
        """
        pieces: list[Piece] = []
        batches = self._batches
        while limit > 0 and self._index < len(batches):
            batch = batches[self._index]
            try:
                start, count = self._taken, batch.count
            except CorruptRecordsError:
                if pieces:
                    # What lies before it first.
                    return pieces
                raise
            stop = min(count, start + limit)
            if stop > start:
                pieces.append(Piece(batch, start, stop))
                limit -= stop - start
                self.leader_epoch = batch.span.leader_epoch
            if stop == count:
                self._index += 1
                self._taken = 0
                self.position = max(self.position, batch.span.next_offset)
            else:
                self._taken = stop
                self.position = batch.offset_after(stop)
        if self._index == len(batches):
            # Markers, aborted records and compacted gaps at the end are passed over as well.
            self.position = self.record_set.end_offset
            if self.record_set.batches:
                self.leader_epoch = self.record_set.batches[-1].leader_epoch
        return pieces

    def give_back(self, count: int) -> None:
        """Undo the taking of the last `count` records."""
        while count > 0:
            if self._taken == 0:
                self._index -= 1
                self._taken = self._batches[self._index].count
            back = min(count, self._taken)
            self._taken -= back
            count -= back
        self._note_position()

    def _note_position(self) -> None:
        index = self._index
        if self._taken:
            batch = self._batches[index]
            self.position = batch.offset_after(self._taken)
            self.leader_epoch = batch.span.leader_epoch
            return
        self.position, self.leader_epoch = self.record_set.first_offset, self._epoch_before
        if index:
            before = self._batches[index - 1].span
            self.position, self.leader_epoch = before.next_offset, before.leader_epoch
