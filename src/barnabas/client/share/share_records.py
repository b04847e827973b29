"""Records that a share consumer has acquired, and the result of its polls."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.topic_partition import TopicPartition, as_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["ShareRecord", "ShareRecords"]


class ShareRecord(NamedTuple):
    """One acquired record: the fields of `ConsumerRecord`, and how often it was delivered."""

    topic: str
    partition: int
    offset: int
    # Milliseconds since 1970; `timestamp_type` is 0 for create time, 1 for log append time.
    timestamp: int
    timestamp_type: int
    # Bytes, None for null, or the return value of a deserializer.
    key: Any
    value: Any
    headers: Sequence[tuple[str, bytes | None]]
    # Number of deliveries including this one, to any member of the group: 1 for the first.
    delivery_count: int


class ShareRecords:
    """Records of one poll, partition by partition, in offset order within each partition.

    Args:
        parts: The records by partition.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: Mapping[TopicPartition, Sequence[ShareRecord]]) -> None:
        self._parts = {tp: tuple(part) for tp, part in parts.items() if part}

    def __len__(self) -> int:
        """Return the number of records in all partitions."""
        return sum(map(len, self._parts.values()))

    def __iter__(self) -> Iterator[ShareRecord]:
        """Iterate over the records of all partitions."""
        return chain.from_iterable(self._parts.values())

    def __getitem__(self, tp: tuple[str, int]) -> tuple[ShareRecord, ...]:
        """Return the records of one partition; empty if this poll has no records of it."""
        return self._parts.get(as_partition(tp), ())

    def __contains__(self, tp: object) -> bool:
        return tp in self._parts

    def __repr__(self) -> str:
        parts = ", ".join(f"{tp}: {len(part)}" for tp, part in self._parts.items())
        return f"ShareRecords({parts})"

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that have records in this poll."""
        return tuple(self._parts)

    def items(self) -> Iterator[tuple[TopicPartition, tuple[ShareRecord, ...]]]:
        """Iterate over pairs of a partition and its records."""
        return iter(self._parts.items())

    def of_topic(self, topic: str) -> Iterator[ShareRecord]:
        """Iterate over the records of all partitions of a topic."""
        return chain.from_iterable(p for tp, p in self._parts.items() if tp.topic == topic)
