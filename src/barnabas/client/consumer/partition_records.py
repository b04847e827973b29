"""The records of one partition in a poll: a sequence of records, and their columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, islice, repeat
from typing import TYPE_CHECKING, Any, NoReturn, overload

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.record.batch import MAGIC_V2, TRANSACTIONAL_FLAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.client.fetch.fetched_batch import Piece
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.record import CorruptBatchError

__all__ = ["PartitionRecords"]


class PartitionRecords(Sequence[ConsumerRecord]):
    """Records of one partition, in offset order.

    The columns `offsets`, `timestamps`, `keys`, `values` and `headers` are lists of equal length.
    `zip` over columns is the fastest way to read many records.

    Batches are decoded on first access. A batch that cannot be decoded raises `CorruptRecordsError`
    then, possibly after its first records; the consumer's next call moves the position back to that
    batch.
    """

    __slots__ = ("_decoded", "_keys", "_values", "pieces", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        pieces: Iterable[Piece],
        keys: list[Any] | None = None,
        values: list[Any] | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        # The batches of these records, with index ranges.
        self.pieces = tuple(pieces)
        # Deserialized keys and values; None without a deserializer.
        self._keys = keys
        self._values = values
        # Columns of offsets, keys and values; None before the first access.
        self._decoded: tuple[list[int], list[Any], list[Any]] | None = None

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self.topic_partition.partition

    def __len__(self) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterate over the records; a batch is decoded while its records are read."""
        return chain.from_iterable(map(self._rows, self.pieces, self._starts()))

    def _rows(self, piece: Piece, start: int) -> Iterator[ConsumerRecord]:
        """Return the records of a piece; its first record has index `start` in this sequence."""
        return chain.from_iterable(self._row_slices(piece, start))

    def _row_slices(self, piece: Piece, start: int) -> Iterator[Iterator[ConsumerRecord]]:
        topic, partition = self.topic_partition
        keys, values = self._keys, self._values
        for offsets, timestamp_types, records in piece.slices():
            stop = start + len(records)
            yield map(
                tuple.__new__,
                repeat(ConsumerRecord),
                zip(
                    repeat(topic),
                    repeat(partition),
                    offsets,
                    [r.timestamp for r in records],
                    timestamp_types,
                    [r.key for r in records] if keys is None else keys[start:stop],
                    [r.value for r in records] if values is None else values[start:stop],
                    [r.headers for r in records],
                    strict=False,
                ),
            )
            start = stop

    def _starts(self) -> Iterator[int]:
        return accumulate((piece.stop - piece.start for piece in self.pieces), initial=0)

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord]: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord | list[ConsumerRecord]:
        if isinstance(index, slice):
            return list(self)[index]
        wanted = index + len(self) if index < 0 else index
        for piece, start in zip(self.pieces, self._starts(), strict=False):
            if 0 <= wanted - start < piece.stop - piece.start:
                return next(islice(self._rows(piece, start), wanted - start, None))
        raise IndexError(index)

    def __repr__(self) -> str:
        return f"PartitionRecords({self.topic_partition}: {len(self)})"

    @property
    def offsets(self) -> list[int]:
        """Offset of each record."""
        return self._columns()[0]

    @property
    def keys(self) -> list[Any]:
        """Key of each record: bytes or None, or the deserialized key."""
        return self._columns()[1]

    @property
    def values(self) -> list[Any]:
        """Value of each record: bytes or None, or the deserialized value."""
        return self._columns()[2]

    def _columns(self) -> tuple[list[int], list[Any], list[Any]]:
        """Return the offsets, keys and values, decoded together batch by batch for locality."""
        if self._decoded is None:
            offsets: list[int] = []
            keys: list[Any] = []
            values: list[Any] = []
            for piece in self.pieces:
                piece.append_to(offsets, keys, values)
            self._decoded = (
                offsets,
                keys if self._keys is None else self._keys,
                values if self._values is None else self._values,
            )
        return self._decoded

    @property
    def timestamps(self) -> list[int]:
        """Timestamp of each record (ms since the epoch)."""
        return [record.timestamp for piece in self.pieces for record in piece.records]

    @property
    def headers(self) -> list[Sequence[tuple[str, bytes | None]]]:
        """Headers of each record, as (name, bytes or None) pairs."""
        return [record.headers for piece in self.pieces for record in piece.records]

    def before(self, offset: int) -> PartitionRecords:
        """Return only the records of the batches that end at or before `offset`."""
        whole = [piece for piece in self.pieces if piece.batch.span.next_offset <= offset]
        return self.first(sum(piece.stop - piece.start for piece in whole))

    def transactional_ranges(self) -> list[tuple[int, int]]:
        """Return first offset and end (exclusive) of each batch that belongs to a transaction.

        The headers of the batches tell it, so that no record is decoded. Ranges are in order.
        """
        spans = (piece.batch.span for piece in self.pieces)
        return [
            (span.base_offset, span.next_offset)
            for span in spans
            if span.magic == MAGIC_V2 and span.attributes & TRANSACTIONAL_FLAG
        ]

    def raise_corrupt(self, cause: CorruptBatchError) -> NoReturn:
        """Raise the error that names the batch that could not be decoded.

        Args:
            cause: The error of a decoder that reads several batches at once.

        Raises:
            CorruptRecordsError: Always; names the first batch that cannot be decoded.
        """
        for piece in self.pieces:
            piece.batch.decode()
        raise self.pieces[0].batch.corrupt(cause) from cause

    def first(self, count: int) -> PartitionRecords:
        """Return only the first `count` records."""
        pieces: list[Piece] = []
        left = count
        for piece in self.pieces:
            if left <= 0:
                break
            stop = min(piece.stop, piece.start + left)
            left -= stop - piece.start
            pieces.append(piece._replace(stop=stop))
        keys = None if self._keys is None else list(islice(self._keys, count))
        values = None if self._values is None else list(islice(self._values, count))
        return PartitionRecords(self.topic_partition, pieces, keys, values)
