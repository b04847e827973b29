"""Topics and their partitions in the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.persistent_map import PersistentMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.metadata.partition_registration import PartitionRegistration


class TopicImage(msgspec.Struct, frozen=True):
    """One topic; `partitions` must not be changed."""

    name: str
    id: bytes
    partitions: Mapping[int, PartitionRegistration]


class TopicsImage:
    """All topics, found by name and by id."""

    __slots__ = ("_by_id", "_by_name", "partition_count")

    def __init__(self) -> None:
        self._by_name: PersistentMap[str, TopicImage] = PersistentMap()
        self._by_id: PersistentMap[bytes, TopicImage] = PersistentMap()
        # Partitions of all topics together.
        self.partition_count = 0

    def by_name(self, name: str) -> TopicImage | None:
        """The topic of that name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic with that id."""
        return self._by_id.get(topic_id)

    def partition(self, name: str, partition: int) -> PartitionRegistration | None:
        """A partition by topic name."""
        topic = self._by_name.get(name)
        return None if topic is None else topic.partitions.get(partition)

    def names(self) -> Iterator[str]:
        """All topic names, in no meaningful order (the same in every process)."""
        return iter(self._by_name)

    def __iter__(self) -> Iterator[TopicImage]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def evolve(self, changed: Iterable[TopicImage], deleted: Iterable[TopicImage]) -> TopicsImage:
        """These topics with `deleted` gone and `changed` put in.

        A name that is deleted and created in one batch has the new topic afterwards.
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
