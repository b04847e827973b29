"""Logs that belong to this broker and their data directories, from a metadata image (KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.partition_registration import RESERVED_DIRECTORIES

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterImage
    from barnabas.storage.topic_partition import TopicPartition


class LogAssignments:
    """Information for the storage about the logs that it finds at the start."""

    __slots__ = ("_image", "_node_id")

    def __init__(self, image: ClusterImage, node_id: int) -> None:
        self._image = image
        self._node_id = node_id

    def is_stray(self, partition: TopicPartition, topic_id: bytes | None) -> bool:
        """Return whether a log is stray: its topic is deleted or recreated, or has no replica here.

        A log without a topic id was never synced, and may belong to an older topic of the same
        name.
        """
        topic = self._image.topics.by_name(partition.topic)
        if topic is None or topic.id != topic_id:
            return True
        registration = topic.partitions.get(partition.partition)
        return registration is None or self._node_id not in registration.replicas

    def directory_id_of(self, partition: TopicPartition) -> bytes | None:
        """Return the id of the assigned data directory, or None if the metadata names none."""
        registration = self._image.topics.partition(*partition)
        if registration is None:
            return None
        directory = registration.directory_of(self._node_id)
        return None if directory in RESERVED_DIRECTORIES else directory

    def topic_id_of(self, partition: TopicPartition) -> bytes | None:
        """Return the id of the topic with this name, or None if it does not exist."""
        topic = self._image.topics.by_name(partition.topic)
        return None if topic is None else topic.id

    def has_other_in_sync(self, partition: TopicPartition) -> bool:
        """Return whether the ISR has another broker, which therefore has all committed records."""
        registration = self._image.topics.partition(*partition)
        return registration is not None and any(each != self._node_id for each in registration.isr)
