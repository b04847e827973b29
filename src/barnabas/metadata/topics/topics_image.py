"""Topics and their partitions in the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.persistent_map import PersistentMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.metadata.partition_registration import PartitionRegistration


class TopicImage(msgspec.Struct, frozen=True):
    """The state of a topic. Callers must not change `partitions`."""

    name: str
    id: bytes
    partitions: Mapping[int, PartitionRegistration]


class TopicsImage:
    """All topics, by name and by id."""

    __slots__ = ("_by_id", "_by_name", "partition_count")

    def __init__(self) -> None:
        self._by_name: PersistentMap[str, TopicImage] = PersistentMap()
        self._by_id: PersistentMap[bytes, TopicImage] = PersistentMap()
        # Number of partitions of all topics.
        self.partition_count = 0

    def by_name(self, name: str) -> TopicImage | None:
        """Return the topic with a name; None if there is none."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> TopicImage | None:
        """Return the topic with an id; None if there is none."""
        return self._by_id.get(topic_id)

    def partition(self, name: str, partition: int) -> PartitionRegistration | None:
        """Return a partition by topic name; None if there is none."""
        topic = self._by_name.get(name)
        return None if topic is None else topic.partitions.get(partition)

    def names(self) -> Iterator[str]:
        """Return all topic names, in an arbitrary order that is the same in every process."""
        return iter(self._by_name)

    def __iter__(self) -> Iterator[TopicImage]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def evolve(self, changed: Iterable[TopicImage], deleted: Iterable[TopicImage]) -> TopicsImage:
        """Return these topics without `deleted`, and with `changed` added or replaced.

        If a topic is deleted and another one with the same name is created, the new topic stays.
        """
        changed, deleted = list(changed), list(deleted)
        count = self.partition_count
        for topic in (*changed, *deleted):
            before = self._by_id.get(topic.id)
            count -= 0 if before is None else len(before.partitions)
        count += sum(len(topic.partitions) for topic in changed)
        made = TopicsImage()
        by_name = {topic.name: topic for topic in changed}
        made._by_name = self._by_name.evolve(
            by_name, [topic.name for topic in deleted if topic.name not in by_name]
        )
        made._by_id = self._by_id.evolve(
            {topic.id: topic for topic in changed}, [topic.id for topic in deleted]
        )
        made.partition_count = count
        return made
