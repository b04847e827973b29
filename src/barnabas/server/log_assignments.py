"""Which logs this broker should have, and in which data directory, by an image (KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.partition_registration import RESERVED_DIRECTORIES

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterImage
    from barnabas.storage.topic_partition import TopicPartition


class LogAssignments:
    """What the storage asks when it finds logs at the start."""

    __slots__ = ("_image", "_node_id")

    def __init__(self, image: ClusterImage, node_id: int) -> None:
        self._image = image
        self._node_id = node_id

    def is_stray(self, partition: TopicPartition, topic_id: bytes | None) -> bool:
        """Whether the log's topic is gone, another one has its name, or it has no replica here.

        A log without a topic id holds nothing that was ever synced, and may be of an older topic.
        """
        topic = self._image.topics.by_name(partition.topic)
        if topic is None or topic.id != topic_id:
            return True
        registration = topic.partitions.get(partition.partition)
        return registration is None or self._node_id not in registration.replicas

    def directory_id_of(self, partition: TopicPartition) -> bytes | None:
        """The data directory that the metadata names; None if it names none."""
        registration = self._image.topics.partition(*partition)
        if registration is None:
            return None
        directory = registration.directory_of(self._node_id)
        return None if directory in RESERVED_DIRECTORIES else directory

    def topic_id_of(self, partition: TopicPartition) -> bytes | None:
        """The id of the topic of that name; None if there is none."""
        topic = self._image.topics.by_name(partition.topic)
        return None if topic is None else topic.id

    def has_other_in_sync(self, partition: TopicPartition) -> bool:
        """Whether another broker's replica has all that is committed."""
        registration = self._image.topics.partition(*partition)
        return registration is not None and any(each != self._node_id for each in registration.isr)
