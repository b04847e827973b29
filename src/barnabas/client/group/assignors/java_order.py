"""The iteration order of Java's hash tables.

In Kafka's sticky assignors this order decides which of several equal members keeps one partition
more. This module reproduces it, so that a group whose leader changes between Java and this client
does not move partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.topic_partition import TopicPartition

__all__ = ["JavaOrderedSet", "java_ordered"]

_CAPACITY_MIN = 16
# A table doubles its capacity when more than three quarters are used.
_FULL = 0.75
_MASK = 0xFFFFFFFF


def java_ordered(names: Iterable[str]) -> list[str]:
    """Return names in the iteration order of a HashMap, inserted in the given order."""
    listed = list(names)
    capacity = _CAPACITY_MIN
    while len(listed) > capacity * _FULL:
        capacity *= 2
    return sorted(listed, key=lambda name: _fold_hash(_string_hash(name)) & (capacity - 1))


class JavaOrderedSet:
    """Partitions with the iteration order of a HashSet, which grows and does not shrink."""

    __slots__ = ("_capacity", "_partitions")

    def __init__(self) -> None:
        self._capacity = _CAPACITY_MIN
        # In insertion order.
        self._partitions: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: TopicPartition) -> None:
        """Add a partition."""
        self._partitions[partition] = None
        if len(self._partitions) > self._capacity * _FULL:
            self._capacity *= 2

    def remove(self, partition: TopicPartition) -> None:
        """Remove a partition, which must be in the set."""
        del self._partitions[partition]

    def first(self) -> TopicPartition:
        """Return the partition that a Java iterator returns first."""
        last = self._capacity - 1
        return min(self._partitions, key=lambda each: _fold_hash(_partition_hash(each)) & last)


def _fold_hash(value: int) -> int:
    return value ^ (value >> 16)


def _string_hash(text: str) -> int:
    """Return Java's String.hashCode, which is computed over UTF-16 code units."""
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
    """Return Java's TopicPartition.hashCode."""
    return (31 * (31 + partition.partition) + _string_hash(partition.topic)) & _MASK
