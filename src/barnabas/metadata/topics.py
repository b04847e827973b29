"""Topics and partitions in the image, and their changes (Kafka's TopicsImage and TopicsDelta).

A delta of topics also has the effects of the changes on the replicas of one broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.metadata.partition_registration import PartitionRegistration
from barnabas.metadata.persistent_map import PersistentMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.protocol.records.topics import (
        ClearElrRecord,
        PartitionChangeRecord,
        PartitionRecord,
        RemoveTopicRecord,
        TopicRecord,
    )


class MetadataReplayError(ValueError):
    """A record contradicts the previous records: the log is damaged, or the code has a bug."""


class TopicImage(msgspec.Struct, frozen=True):
    """The state of a topic. Callers must not change `partitions`."""

    name: str
    id: bytes
    partitions: Mapping[int, PartitionRegistration]


class TopicsImage:
    """All topics, by name and by id."""

    __slots__ = ("_by_id", "_by_name", "by_id", "by_name", "partition_count")

    def __init__(
        self,
        by_name: PersistentMap[str, TopicImage] | None = None,
        by_id: PersistentMap[bytes, TopicImage] | None = None,
        partition_count: int = 0,
    ) -> None:
        self._by_name: PersistentMap[str, TopicImage] = by_name or PersistentMap()
        self._by_id: PersistentMap[bytes, TopicImage] = by_id or PersistentMap()
        # Return the topic with a name or an id; None if there is none. Nearly every request calls
        # them, so they are the methods of the maps.
        self.by_name = self._by_name.get
        self.by_id = self._by_id.get
        # Number of partitions of all topics.
        self.partition_count = partition_count

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
        by_name = {topic.name: topic for topic in changed}
        return TopicsImage(
            self._by_name.evolve(
                by_name, [topic.name for topic in deleted if topic.name not in by_name]
            ),
            self._by_id.evolve(
                {topic.id: topic for topic in changed}, [topic.id for topic in deleted]
            ),
            count,
        )


class LocalPartition(NamedTuple):
    """A partition with a replica on this broker, in its state after the delta."""

    topic: str
    partition: int
    topic_id: bytes
    registration: PartitionRegistration


class DeletedPartition(NamedTuple):
    """A partition that no longer has a replica on this broker."""

    topic: str
    partition: int
    topic_id: bytes
    # Whether the topic was deleted; otherwise only this broker's replica was.
    topic_deleted: bool


class LocalChanges(msgspec.Struct):
    """The actions of one broker on its replicas."""

    # Replicas to delete, before all other actions.
    deletes: list[DeletedPartition] = msgspec.field(default_factory=list)
    # Changed partitions that this broker leads.
    leaders: list[LocalPartition] = msgspec.field(default_factory=list)
    # Changed partitions with a replica on this broker that it does not lead.
    followers: list[LocalPartition] = msgspec.field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.deletes or self.leaders or self.followers)


class TopicDelta:
    """Changes of one new or existing topic."""

    __slots__ = ("image", "partition_changes")

    def __init__(self, image: TopicImage) -> None:
        # The topic before the changes; without partitions if the topic is new.
        self.image = image
        # Changed and new partitions in their state after the changes.
        self.partition_changes: dict[int, PartitionRegistration] = {}

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self.image.name

    @property
    def id(self) -> bytes:
        """The id of the topic."""
        return self.image.id

    @property
    def changes_replicas(self) -> bool:
        """Whether partitions are new, or have other replicas."""
        before = self.image.partitions
        return any(
            partition not in before or before[partition].replicas != after.replicas
            for partition, after in self.partition_changes.items()
        )

    def partition(self, partition: int) -> PartitionRegistration | None:
        """Return the current state of a partition; None if it does not exist."""
        changed = self.partition_changes.get(partition)
        return self.image.partitions.get(partition) if changed is None else changed

    def replay_partition(self, record: PartitionRecord) -> None:
        """Add a partition, or replace an existing one."""
        self.partition_changes[record.partition_id] = PartitionRegistration.from_record(record)

    def replay_change(self, record: PartitionChangeRecord) -> None:
        """Apply a change to a partition."""
        before = self.partition(record.partition_id)
        if before is None:
            raise MetadataReplayError(
                f"change of {self.name}-{record.partition_id}, which does not exist"
            )
        self.partition_changes[record.partition_id] = before.merge(record)

    def clear_elr(self) -> None:
        """Clear the eligible leader replicas of every partition."""
        for partition in sorted({*self.image.partitions, *self.partition_changes}):
            before = self.partition(partition)
            assert before is not None
            after = before.without_elr()
            if after is not before:
                self.partition_changes[partition] = after

    def forget_unchanged(self) -> None:
        """Drop partitions whose new state is equal to the old state."""
        before = self.image.partitions
        self.partition_changes = {
            partition: after
            for partition, after in self.partition_changes.items()
            if before.get(partition) != after
        }

    def apply(self) -> TopicImage:
        """Return the topic with all changes applied."""
        return TopicImage(self.name, self.id, {**self.image.partitions, **self.partition_changes})


class TopicsDelta:
    """Changes of all topics."""

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        # Changes of new and existing topics by topic id, in the order of their first change.
        self.changed: dict[bytes, TopicDelta] = {}
        # Ids of new topics by name.
        self.created: dict[str, bytes] = {}
        # Deleted topics of `image` by topic id.
        self.deleted: dict[bytes, TopicImage] = {}

    def replay_topic(self, record: TopicRecord) -> None:
        """Add a topic. While a snapshot is loaded, the topic may exist already."""
        known = self.image.by_id(record.topic_id)
        if known is None:
            self.created[record.name] = record.topic_id
            known = TopicImage(record.name, record.topic_id, {})
        self.changed[record.topic_id] = TopicDelta(known)

    def replay_partition(self, record: PartitionRecord) -> None:
        """Add a partition."""
        self._topic(record.topic_id).replay_partition(record)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """Change a partition."""
        self._topic(record.topic_id).replay_change(record)

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """Delete a topic; returns its name."""
        name = self._topic(record.topic_id).name
        self.changed.pop(record.topic_id, None)
        if self.created.get(name) == record.topic_id:
            del self.created[name]
        before = self.image.by_id(record.topic_id)
        if before is not None:
            self.deleted[record.topic_id] = before
        return name

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Clear the eligible leader replicas of one topic or of all topics."""
        if record.topic_name:
            topic_id = self.created.get(record.topic_name)
            if topic_id is None:
                topic = self.image.by_name(record.topic_name)
                topic_id = None if topic is None else topic.id
            if topic_id is not None and topic_id not in self.deleted:
                self._topic(topic_id).clear_elr()
            return
        ids = [topic.id for topic in self.image if topic.id not in self.deleted]
        for topic_id in [*ids, *self.created.values()]:
            self._topic(topic_id).clear_elr()

    def finish_snapshot(self) -> None:
        """Delete the topics that the records do not mention, because they are a full snapshot."""
        for topic in self.image:
            delta = self.changed.get(topic.id)
            if delta is None:
                self.deleted[topic.id] = topic
                continue
            delta.forget_unchanged()
            if not delta.partition_changes:
                del self.changed[topic.id]

    def apply(self) -> TopicsImage:
        """Return all topics with the changes applied; the same object if nothing changed."""
        if not self.changed and not self.deleted:
            return self.image
        return self.image.evolve(
            [delta.apply() for delta in self.changed.values()], self.deleted.values()
        )

    def local_changes(self, broker_id: int) -> LocalChanges:
        """Return the replicas that the broker has to delete, lead, or use as follower."""
        local = LocalChanges()
        for topic in self.deleted.values():
            for partition, registration in topic.partitions.items():
                if broker_id in registration.replicas:
                    local.deletes.append(DeletedPartition(topic.name, partition, topic.id, True))
        for delta in self.changed.values():
            for partition, registration in delta.partition_changes.items():
                if broker_id in registration.replicas:
                    where = local.leaders if registration.leader == broker_id else local.followers
                    where.append(LocalPartition(delta.name, partition, delta.id, registration))
                    continue
                before = delta.image.partitions.get(partition)
                if before is not None and broker_id in before.replicas:
                    local.deletes.append(DeletedPartition(delta.name, partition, delta.id, False))
        return local

    def changed_partitions(
        self,
    ) -> Iterator[tuple[TopicDelta, int, PartitionRegistration | None, PartitionRegistration]]:
        """Yield (topic, partition, before, after) of each changed partition; before may be None."""
        for delta in self.changed.values():
            before: Mapping[int, PartitionRegistration] = delta.image.partitions
            for partition, after in delta.partition_changes.items():
                yield delta, partition, before.get(partition), after

    def _topic(self, topic_id: bytes) -> TopicDelta:
        delta = self.changed.get(topic_id)
        if delta is None:
            before = None if topic_id in self.deleted else self.image.by_id(topic_id)
            if before is None:
                raise MetadataReplayError(f"record of topic {topic_id.hex()}, which is not there")
            delta = self.changed[topic_id] = TopicDelta(before)
        return delta
