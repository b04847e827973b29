"""The records of one partition in a poll: a sequence of records, and their columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain, islice, repeat
from typing import TYPE_CHECKING, Any, NoReturn, overload

from barnabas.client.record_decoding import ConsumerRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.client.consumer.fetched_set import Piece
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.errors import CorruptBatchError

__all__ = ["PartitionRecords"]

_make = partial(tuple.__new__, ConsumerRecord)


class PartitionRecords(Sequence[ConsumerRecord]):
    """Records of one partition, in order of their offsets.

    The columns `offsets`, `timestamps`, `keys`, `values` and `headers` are lists of one length:
    `zip` over them is the fast way through many records.

    Batches are decoded when they are looked at. One that cannot be raises `CorruptRecordsError`
    then, and the consumer's position is there again with its next call.
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
        # Which records of which batches these are.
        self.pieces = tuple(pieces)
        # What deserializers made of keys and values; None where there is none.
        self._keys = keys
        self._values = values
        # Offsets, keys and values, once one of them was asked for.
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
        """Record by record; a batch is decoded when its first record is reached."""
        return chain.from_iterable(map(self._rows, self.pieces, self._starts()))

    def _rows(self, piece: Piece, start: int) -> Iterator[ConsumerRecord]:
        """The records of a piece, the first of which is number `start` of all."""
        records = piece.records
        stop = start + len(records)
        topic, partition = self.topic_partition
        keys, values = self._keys, self._values
        return map(
            _make,
            zip(
                repeat(topic),
                repeat(partition),
                [r.offset for r in records],
                [r.timestamp for r in records],
                [r.timestamp_type for r in records],
                [r.key for r in records] if keys is None else keys[start:stop],
                [r.value for r in records] if values is None else values[start:stop],
                [r.headers for r in records],
                strict=False,
            ),
        )

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
        """Key of each record: bytes or None, or what the deserializer made of it."""
        return self._columns()[1]

    @property
    def values(self) -> list[Any]:
        """Value of each record: bytes or None, or what the deserializer made of it."""
        return self._columns()[2]

    def _columns(self) -> tuple[list[int], list[Any], list[Any]]:
        """What nearly everyone wants, taken together: batch by batch, while it is in the cache."""
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
        """Timestamp of each record, in ms."""
        return [record.timestamp for piece in self.pieces for record in piece.records]

    @property
    def headers(self) -> list[Sequence[tuple[str, bytes | None]]]:
        """Headers of each record, as (name, bytes or None) pairs."""
        return [record.headers for piece in self.pieces for record in piece.records]

    def before(self, offset: int) -> PartitionRecords:
        """Only the records of batches before the one that holds `offset`."""
        whole = [piece for piece in self.pieces if piece.batch.span.next_offset <= offset]
        return self.first(sum(piece.stop - piece.start for piece in whole))

    def raise_corrupt(self, cause: CorruptBatchError) -> NoReturn:
        """Raise, for someone who could not decode these records, which of them it is.

        Raises:
            CorruptRecordsError: of the first batch that cannot be decoded.
        """
        for piece in self.pieces:
            piece.batch.decode()
        raise self.pieces[0].batch.corrupt(cause) from cause

    def first(self, count: int) -> PartitionRecords:
        """Only the first `count` records."""
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
