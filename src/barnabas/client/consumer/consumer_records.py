"""The result of `poll`: records in batches, which are decoded on first access.

Records can be counted, iterated, looked up by partition, and read as columns or as Arrow tables.
Only iteration creates an object per record.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from barnabas.client.consumer.partition_records import PartitionRecords
from barnabas.client.topic_partition import TopicPartition, as_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.client.group.group_offsets import CommittedOffset

__all__ = ["ConsumerRecords"]


class ConsumerRecords:
    """Records of one poll, partition by partition, in offset order within each partition.

    Args:
        parts: The records by partition.
        next_offsets: For each partition the offset of the next record to read, as `commit` commits
            it.
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
        """Return the number of records in all partitions."""
        return sum(map(len, self._parts.values()))

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterate over the records of all partitions."""
        return chain.from_iterable(self._parts.values())

    def __getitem__(self, tp: tuple[str, int]) -> PartitionRecords:
        """Return the records of one partition; empty if this poll has no records of it."""
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
        """The partitions that have records in this poll."""
        return tuple(self._parts)

    def items(self) -> Iterator[tuple[TopicPartition, PartitionRecords]]:
        """Iterate over pairs of a partition and its records."""
        return iter(self._parts.items())

    def batches(self) -> Iterator[PartitionRecords]:
        """Iterate over the records of each partition, to read them as columns.

        The decoded records of a partition are freed when the next partition is requested, unless
        the caller keeps a reference to them or to this object.
        """
        left = list(self._parts.values())
        left.reverse()
        # Drop this reference; otherwise the generator would keep all records until it ends.
        del self
        while left:
            yield left.pop()

    def of_topic(self, topic: str) -> Iterator[ConsumerRecord]:
        """Iterate over the records of all partitions of a topic."""
        return chain.from_iterable(p for tp, p in self._parts.items() if tp.topic == topic)

    def to_arrow(self) -> pa.Table:
        """Return all records as one Arrow table, without an object per record.

        Columns: topic, partition, offset, timestamp (ms, UTC), timestamp_type, key, value and
        headers. Key and value are the raw bytes; deserializers do not apply.

        Raises:
            ImportError: pyarrow or numpy is not installed (Barnabas's extra `arrow` installs both).
            CorruptRecordsError: A batch has malformed bytes.
        """
        try:
            from barnabas.client.consumer.arrow import to_table
        except ImportError as error:
            raise _missing("to_arrow", error) from error
        return to_table(self._parts.values())

    def to_pandas(self) -> Any:
        """Return all records as a pandas DataFrame, with the columns of `to_arrow`.

        Raises:
            ImportError: pandas or pyarrow is not installed (the extra `arrow` installs both).
            CorruptRecordsError: A batch has malformed bytes.
        """
        table = self.to_arrow()
        try:
            return table.to_pandas()
        except ImportError as error:
            raise _missing("to_pandas", error) from error


def _missing(method: str, error: ImportError) -> ImportError:
    """Return the error of a method that needs a package of the extra `arrow`."""
    return ImportError(
        f"{method}() needs the package {error.name or 'pandas'} of the extra `arrow`: install it, "
        "for example by: pip install pyarrow pandas",
        name=error.name,
    )
