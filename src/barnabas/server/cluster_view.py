"""The newest cluster image that this broker has taken in, as request handlers look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.image import ClusterImage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.broker_registration import BrokerRegistration, Endpoint
    from barnabas.metadata.partition_registration import PartitionRegistration


class ClusterView:
    """Holds the image; replaced whole by the broker after each committed batch of metadata."""

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image = ClusterImage()

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with that id; None if there is none."""
        topic = self.image.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> bytes | None:
        """The id of the topic of that name; None if there is none."""
        topic = self.image.topics.by_name(name)
        return None if topic is None else topic.id

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        """A partition's replicas and leader; None if there is none."""
        return self.image.topics.partition(topic, partition)

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether the topic has that partition."""
        return self.image.topics.partition(name, partition) is not None

    def partition_count(self, name: str) -> int:
        """How many partitions the topic has; 0 if it does not exist."""
        topic = self.image.topics.by_name(name)
        return 0 if topic is None else len(topic.partitions)

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered and not fenced."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def told_controller(self, own_id: int) -> int:
        """The broker that clients are told is the controller; -1 if none is live.

        Clients cannot reach controllers; any broker forwards what is for them (KIP-590).
        """
        if self.is_alive(own_id):
            return own_id
        live = (broker.id for broker in self.image.brokers.values() if not broker.fenced)
        return next(live, -1)

    def offline_replicas(self, partition: PartitionRegistration) -> list[int]:
        """Replicas whose broker is not live, or whose data directory has failed (KIP-112)."""
        return [
            replica
            for replica in partition.replicas
            if not self.is_alive(replica)
            or not self.image.brokers[replica].has_online(partition.directory_of(replica))
        ]

    def live_brokers(self, listener_name: str) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
        """Brokers that are not fenced and have a listener of that name, with its address."""
        for broker in self.image.brokers.values():
            endpoint = broker.listeners.get(listener_name)
            if endpoint is not None and not broker.fenced:
                yield broker, endpoint

    def endpoint(self, broker_id: int, listener_name: str) -> Endpoint | None:
        """Where a live broker can be reached; None if it cannot."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        return broker.listeners.get(listener_name)
