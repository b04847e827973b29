"""One fetched batch and its records, which are decoded on first access.

The batch header contains the number of records, so a poll that returns whole batches decodes
nothing. A batch that is returned in parts is decoded once. A batch with more than
`DECODED_RECORDS_MAX` records is decoded in parts, because a small batch may contain millions of
records.
"""

from __future__ import annotations

from itertools import islice, repeat
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import CorruptRecordsError
from barnabas.client.fetch.record_set import iter_span_records, span_records
from barnabas.record.batch import MAGIC_V2, read_header
from barnabas.record.columns import append_columns, record_slices, uncompressed
from barnabas.record.record import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from barnabas.client.fetch.record_set import BatchSpan
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.compiled import CompiledRecord

__all__ = ["DECODED_RECORDS_MAX", "BatchOrigin", "FetchedBatch", "Piece", "RecordSlice"]

# Batches with more records are decoded in parts. This number of decoded records takes about 2 MB.
DECODED_RECORDS_MAX = 10_000
# Records per slice of `Piece.slices`. The garbage collector tracks two objects per record, and runs
# each time the number of tracked objects has grown by 700.
_ROWS_AT_ONCE = 100


class BatchOrigin(NamedTuple):
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

    def __init__(
        self,
        data: bytes | memoryview,
        span: BatchSpan,
        first: int,
        end: int,
        origin: BatchOrigin,
    ) -> None:
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
        next_offset = max(self.span.next_offset, self.first_offset + 1)
        error = CorruptRecordsError(tp, self.first_offset, str(cause), next_offset)
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


class RecordSlice(NamedTuple):
    """Some consecutive decoded records, with their offsets and timestamp types."""

    offsets: Iterable[int]
    # May be endless.
    timestamp_types: Iterable[int]
    records: Sequence[CompiledRecord]


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

    @property
    def _is_undecoded_whole(self) -> bool:
        """Whether these are all records of a batch that is not decoded."""
        batch = self.batch
        return self.stop - self.start == batch.span.record_count and not batch.is_decoded

    def slices(self) -> Iterator[RecordSlice]:
        """Yield the records in slices.

        A whole batch is decoded slice by slice, so that the records of a slice are still in the
        processor's cache when the caller reads them.

        Raises:
            CorruptRecordsError: The batch has malformed bytes; some slices may have been yielded.
        """
        batch, span = self.batch, self.batch.span
        if not self._is_undecoded_whole:
            records = self.records
            offsets = [record.offset for record in records]
            yield RecordSlice(offsets, [record.timestamp_type for record in records], records)
            return
        is_dense = span.next_offset - span.base_offset == span.record_count
        next_offset = span.base_offset
        try:
            header = read_header(batch.data, span.start)
            types = repeat(header.timestamp_type)
            whole = uncompressed(batch.data, span.start, header)
            for part in record_slices(whole, header, repeat(_ROWS_AT_ONCE)):
                first, next_offset = next_offset, next_offset + len(part)
                in_order = range(first, next_offset)
                yield RecordSlice(in_order if is_dense else [r.offset for r in part], types, part)
        except CorruptBatchError as error:
            raise batch.corrupt(error) from error

    def append_to(
        self, offsets: list[int], keys: list[bytes | None], values: list[bytes | None]
    ) -> None:
        """Append the offset, key and value of each record to the given lists.

        Raises:
            CorruptRecordsError: The batch has malformed bytes.
        """
        span = self.batch.span
        if self._is_undecoded_whole:
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
