"""The records of one partition in a poll: a sequence of records, and their columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, overload

from barnabas.client.record_decoding import ConsumerRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.client.consumer.fetched_set import Piece
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.compiled import CompiledRecord

__all__ = ["PartitionRecords"]

_make = partial(tuple.__new__, ConsumerRecord)


class PartitionRecords(Sequence[ConsumerRecord]):
    """Records of one partition, in order of their offsets.

    The columns `offsets`, `timestamps`, `keys`, `values` and `headers` are lists of one length:
    `zip` over them is the fast way through many records.
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
        self._decoded: Sequence[CompiledRecord] | None = None

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
        records = self._records()
        topic, partition = self.topic_partition
        return map(
            _make,
            zip(
                repeat(topic),
                repeat(partition),
                [r.offset for r in records],
                [r.timestamp for r in records],
                [r.timestamp_type for r in records],
                self.keys,
                self.values,
                [r.headers for r in records],
                strict=False,
            ),
        )

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord]: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord | list[ConsumerRecord]:
        if isinstance(index, slice):
            return list(self)[index]
        record = self._records()[index]
        key = record.key if self._keys is None else self._keys[index]
        value = record.value if self._values is None else self._values[index]
        return ConsumerRecord(
            *self.topic_partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            key,
            value,
            record.headers,
        )

    def __repr__(self) -> str:
        return f"PartitionRecords({self.topic_partition}: {len(self)})"

    def _records(self) -> Sequence[CompiledRecord]:
        """All records as the compiled reader makes them."""
        if self._decoded is None:
            pieces = self.pieces
            if len(pieces) == 1:
                self._decoded = pieces[0].records
            else:
                self._decoded = list(chain.from_iterable(piece.records for piece in pieces))
        return self._decoded

    @property
    def offsets(self) -> list[int]:
        """Offset of each record."""
        return [record.offset for record in self._records()]

    @property
    def timestamps(self) -> list[int]:
        """Timestamp of each record, in ms."""
        return [record.timestamp for record in self._records()]

    @property
    def keys(self) -> list[Any]:
        """Key of each record: bytes or None, or what the deserializer made of it."""
        if self._keys is not None:
            return self._keys
        return [record.key for record in self._records()]

    @property
    def values(self) -> list[Any]:
        """Value of each record: bytes or None, or what the deserializer made of it."""
        if self._values is not None:
            return self._values
        return [record.value for record in self._records()]

    @property
    def headers(self) -> list[Sequence[tuple[str, bytes | None]]]:
        """Headers of each record, as (name, bytes or None) pairs."""
        return [record.headers for record in self._records()]

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
