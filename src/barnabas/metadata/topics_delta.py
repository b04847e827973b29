"""What changed about topics, and what of it concerns one broker (Kafka's TopicsDelta)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.metadata.errors import MetadataReplayError
from barnabas.metadata.partition_registration import PartitionRegistration
from barnabas.metadata.topics_image import TopicImage, TopicsImage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.protocol.records.clear_elr_record import ClearElrRecord
    from barnabas.protocol.records.partition_change_record import PartitionChangeRecord
    from barnabas.protocol.records.partition_record import PartitionRecord
    from barnabas.protocol.records.remove_topic_record import RemoveTopicRecord
    from barnabas.protocol.records.topic_record import TopicRecord


class LocalPartition(NamedTuple):
    """A partition of this broker, as it is after the delta."""

    topic: str
    partition: int
    topic_id: bytes
    registration: PartitionRegistration


class DeletedPartition(NamedTuple):
    """A partition that this broker has no replica of any more."""

    topic: str
    partition: int
    topic_id: bytes
    # The topic is gone; else only this broker's replica.
    topic_deleted: bool


class LocalChanges(msgspec.Struct):
    """What one broker has to do about its replicas."""

    # First of all.
    deletes: list[DeletedPartition] = msgspec.field(default_factory=list)
    # This broker leads them; a new leader epoch began, or replicas or ISR changed.
    leaders: list[LocalPartition] = msgspec.field(default_factory=list)
    # Another broker leads them, or nobody.
    followers: list[LocalPartition] = msgspec.field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.deletes or self.leaders or self.followers)


class TopicDelta:
    """Changes of one topic, new or old."""

    __slots__ = ("image", "partition_changes")

    def __init__(self, image: TopicImage) -> None:
        # The topic before; without partitions if it is new.
        self.image = image
        # Changed and new partitions, as they are afterwards.
        self.partition_changes: dict[int, PartitionRegistration] = {}

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.image.name

    @property
    def id(self) -> bytes:
        """The topic's id."""
        return self.image.id

    def partition(self, partition: int) -> PartitionRegistration | None:
        """A partition as it is now."""
        changed = self.partition_changes.get(partition)
        return self.image.partitions.get(partition) if changed is None else changed

    def replay_partition(self, record: PartitionRecord) -> None:
        """A new partition, or an old one declared anew."""
        self.partition_changes[record.partition_id] = PartitionRegistration.from_record(record)

    def replay_change(self, record: PartitionChangeRecord) -> None:
        """A partition changed in part."""
        before = self.partition(record.partition_id)
        if before is None:
            raise MetadataReplayError(
                f"change of {self.name}-{record.partition_id}, which does not exist"
            )
        self.partition_changes[record.partition_id] = before.merge(record)

    def clear_elr(self) -> None:
        """Forget the eligible leader replicas of every partition."""
        for partition in sorted({*self.image.partitions, *self.partition_changes}):
            before = self.partition(partition)
            assert before is not None
            after = before.without_elr()
            if after is not before:
                self.partition_changes[partition] = after

    def forget_unchanged(self) -> None:
        """Drop partitions that were declared anew just as they were."""
        before = self.image.partitions
        self.partition_changes = {
            partition: after
            for partition, after in self.partition_changes.items()
            if before.get(partition) != after
        }

    def apply(self) -> TopicImage:
        """The topic afterwards."""
        return TopicImage(self.name, self.id, {**self.image.partitions, **self.partition_changes})


class TopicsDelta:
    """Changes of all topics in one batch of records."""

    __slots__ = ("changed", "created", "deleted", "image")

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        # Changed and new topics by id, in the order of their first change.
        self.changed: dict[bytes, TopicDelta] = {}
        # Ids of those that are new, by name.
        self.created: dict[str, bytes] = {}
        # Topics of `image` that are gone, by id.
        self.deleted: dict[bytes, TopicImage] = {}

    def replay_topic(self, record: TopicRecord) -> None:
        """A new topic; or, while a snapshot is loaded, one that may be known already."""
        known = self.image.by_id(record.topic_id)
        if known is None:
            self.created[record.name] = record.topic_id
            known = TopicImage(record.name, record.topic_id, {})
        self.changed[record.topic_id] = TopicDelta(known)

    def replay_partition(self, record: PartitionRecord) -> None:
        """A new partition."""
        self._topic(record.topic_id).replay_partition(record)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """A changed partition."""
        self._topic(record.topic_id).replay_change(record)

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """A topic gone; returns its name."""
        name = self._topic(record.topic_id).name
        self.changed.pop(record.topic_id, None)
        if self.created.get(name) == record.topic_id:
            del self.created[name]
        before = self.image.by_id(record.topic_id)
        if before is not None:
            self.deleted[record.topic_id] = before
        return name

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Eligible leader replicas forgotten, of one topic or of all."""
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
        """The records were a whole snapshot: what they did not mention is gone."""
        for topic in self.image:
            delta = self.changed.get(topic.id)
            if delta is None:
                self.deleted[topic.id] = topic
                continue
            delta.forget_unchanged()
            if not delta.partition_changes:
                del self.changed[topic.id]

    def apply(self) -> TopicsImage:
        """All topics afterwards; the very same object if nothing changed."""
        if not self.changed and not self.deleted:
            return self.image
        return self.image.evolve(
            [delta.apply() for delta in self.changed.values()], self.deleted.values()
        )

    def topic_by_name(self, name: str) -> TopicImage | TopicDelta | None:
        """The topic of that name, as far as it has changed."""
        topic_id = self.created.get(name)
        if topic_id is not None:
            return self.changed[topic_id]
        before = self.image.by_name(name)
        if before is None or before.id in self.deleted:
            return None
        return self.changed.get(before.id, before)

    def local_changes(self, broker_id: int) -> LocalChanges:
        """What the broker has to do: replicas to delete, to lead, to follow with."""
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
        """(topic, partition, before or None, after) of each changed partition."""
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
