"""Name of a partition in the client's API (Kafka's TopicPartition)."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "K",
    "TopicPartition",
    "as_partition",
    "as_partitions",
    "by_partition",
    "by_topic",
    "flat_partitions",
    "numbers_by_topic",
]

# A TopicPartition or a plain tuple (topic, partition), so that mappings of both are accepted.
K = TypeVar("K", bound=tuple[str, int])
V = TypeVar("V")


class TopicPartition(NamedTuple):
    """A topic and a partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def as_partition(given: object) -> TopicPartition:
    """Convert a TopicPartition or a tuple (topic, partition).

    Raises:
        TypeError: the argument is neither.
    """
    if isinstance(given, tuple) and len(given) == 2:
        topic, partition = given
        if isinstance(topic, str) and hasattr(partition, "__index__"):
            return TopicPartition(topic, index(partition))
    raise TypeError(f"{given!r} is not a partition: give a TopicPartition or (topic, number)")


def as_partitions(given: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """Convert partitions as `as_partition` does, in the same order."""
    return [as_partition(each) for each in given]


def flat_partitions(
    given: Iterable[tuple[str, int] | Iterable[tuple[str, int]]],
) -> list[TopicPartition]:
    """Return partitions as one list; each argument is a partition or a collection of partitions."""
    found: list[TopicPartition] = []
    for item in given:
        # A plain string is not a collection of partitions; `as_partition` rejects it.
        if isinstance(item, str) or (isinstance(item, tuple) and item and isinstance(item[0], str)):
            found.append(as_partition(item))
        else:
            found += map(as_partition, item)
    return found


def by_partition(given: Mapping[K, V]) -> dict[TopicPartition, V]:
    """Convert the keys of a mapping as `as_partition` does."""
    return {as_partition(each): value for each, value in given.items()}


def by_topic(pairs: Iterable[tuple[TopicPartition, V]]) -> dict[str, list[V]]:
    """Group the values of partitions by topic."""
    topics: dict[str, list[V]] = {}
    for tp, value in pairs:
        topics.setdefault(tp.topic, []).append(value)
    return topics


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partition numbers by topic."""
    return by_topic((tp, tp.partition) for tp in partitions)
