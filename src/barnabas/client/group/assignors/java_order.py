"""The order in which Java's hash tables go through their keys.

Kafka's sticky assignors let it decide who of equal members keeps one partition more. A group in
which Java and this client lead by turns must not move partitions for that, so it is followed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.topic_partition import TopicPartition

__all__ = ["JavaOrderedSet", "java_ordered"]

_CAPACITY_MIN = 16
# A table is doubled when it is more than three quarters full.
_FULL = 0.75
_MASK = 0xFFFFFFFF


def java_ordered(names: Iterable[str]) -> list[str]:
    """Names as the keys of a HashMap that they were put into in the order given."""
    listed = list(names)
    capacity = _CAPACITY_MIN
    while len(listed) > capacity * _FULL:
        capacity *= 2
    return sorted(listed, key=lambda name: _spread(_string_hash(name)) & (capacity - 1))


class JavaOrderedSet:
    """Partitions in a HashSet, which grows and does not shrink."""

    __slots__ = ("_capacity", "_partitions")

    def __init__(self) -> None:
        self._capacity = _CAPACITY_MIN
        # In the order in which they were added.
        self._partitions: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: TopicPartition) -> None:
        """Put one in."""
        self._partitions[partition] = None
        if len(self._partitions) > self._capacity * _FULL:
            self._capacity *= 2

    def remove(self, partition: TopicPartition) -> None:
        """Take one out that is in."""
        del self._partitions[partition]

    def first(self) -> TopicPartition:
        """The one that an iterator gives first."""
        last = self._capacity - 1
        return min(self._partitions, key=lambda each: _spread(_partition_hash(each)) & last)


def _spread(value: int) -> int:
    return value ^ (value >> 16)


def _string_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (31 * value + unit) & _MASK
        return value
    raw = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(raw), 2):
        value = (31 * value + (raw[index] << 8 | raw[index + 1])) & _MASK
    return value


def _partition_hash(partition: TopicPartition) -> int:
    """TopicPartition.hashCode."""
    return (31 * (31 + partition.partition) + _string_hash(partition.topic)) & _MASK
