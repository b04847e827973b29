"""What `poll` returns: records in batches, decoded when they are touched.

They are counted, iterated, looked up by partition, taken as columns or as Arrow tables; only
iterating makes an object per record.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from barnabas.client.consumer.partition_records import PartitionRecords
from barnabas.client.topic_partition import TopicPartition, as_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from barnabas.client.group_offsets import CommittedOffset
    from barnabas.client.record_decoding import ConsumerRecord

__all__ = ["ConsumerRecords"]


class ConsumerRecords:
    """Records of one poll: in order within a partition, one partition after the other.

    Args:
        parts: the records by partition.
        next_offsets: where each partition's reading goes on; what `commit` commits.
    """

    __slots__ = ("_parts", "next_offsets")

    def __init__(
        self,
        parts: Mapping[TopicPartition, PartitionRecords],
        next_offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        self._parts = dict(parts)
        self.next_offsets = dict(next_offsets)

    def __len__(self) -> int:
        """Number of records, of all partitions."""
        return sum(map(len, self._parts.values()))

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record by record."""
        return chain.from_iterable(self._parts.values())

    def __getitem__(self, tp: tuple[str, int]) -> PartitionRecords:
        """The records of one partition, none if it has none here."""
        key = as_partition(tp)
        found = self._parts.get(key)
        return PartitionRecords(key, ()) if found is None else found

    def __contains__(self, tp: object) -> bool:
        return tp in self._parts

    def __repr__(self) -> str:
        parts = ", ".join(f"{tp}: {len(part)}" for tp, part in self._parts.items())
        return f"ConsumerRecords({parts})"

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that there are records of."""
        return tuple(self._parts)

    def items(self) -> Iterator[tuple[TopicPartition, PartitionRecords]]:
        """Partition by partition, with its records."""
        return iter(self._parts.items())

    def batches(self) -> Iterator[PartitionRecords]:
        """The records partition by partition: to read as columns.

        What was decoded of a partition is freed once the next is asked for, if the caller keeps
        neither it nor this.
        """
        left = list(self._parts.values())
        left.reverse()
        # Else the iterator would keep everything until its end.
        del self
        while left:
            yield left.pop()

    def of_topic(self, topic: str) -> Iterator[ConsumerRecord]:
        """The records of a topic, of all of its partitions."""
        return chain.from_iterable(p for tp, p in self._parts.items() if tp.topic == topic)

    def to_arrow(self) -> pa.Table:
        """All records as one table, without an object per record.

        Columns: topic, partition, offset, timestamp (ms, UTC), timestamp_type, key, value and
        headers; key and value are bytes whatever the deserializers.

        Raises:
            ImportError: pyarrow or numpy is not installed (Barnabas's extra `arrow` brings both).
        """
        from barnabas.client.consumer.arrow import to_table

        return to_table(self._parts.values())

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame."""
        return self.to_arrow().to_pandas()
