"""The newest cluster image that this broker has taken in, as request handlers look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.image import ClusterImage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.broker_registration import BrokerRegistration, Endpoint
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.runtime.clock import Clock
    from barnabas.server.backlog import Backlog


# How long Metadata responses still list a broker that was fenced.
DEPARTED_LISTED_MS = 2_000.0


class ClusterView:
    """Holds the image, which the broker replaces whole after each committed batch of metadata."""

    __slots__ = ("_clock", "_departed", "backlog", "image")

    def __init__(self, clock: Clock, backlog: Backlog) -> None:
        self._clock = clock
        # What this broker still has to do about the image.
        self.backlog = backlog
        # Brokers that were fenced, and until when (monotonic, ms) they are still listed.
        self._departed: dict[int, float] = {}
        self.image = ClusterImage()

    def update(self, image: ClusterImage) -> None:
        """Take over a newer image."""
        now_ms = self._clock.monotonic_ms()
        for broker_id, before in self.image.brokers.items():
            after = image.brokers.get(broker_id)
            if after is not None and after.fenced and not before.fenced:
                self._departed[broker_id] = now_ms + DEPARTED_LISTED_MS
        self.image = image

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

    def listed_brokers(self, listener_name: str) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
        """Yield the brokers of a Metadata response that have that listener, with its address.

        A broker that was fenced is listed for two more seconds. librdkafka destroys its handle of
        a broker that is missing. If the same response names a new leader for that broker's
        partitions, librdkafka loses the new leader too, and asks again only a second later.
        """
        if self._departed:
            now_ms = self._clock.monotonic_ms()
            self._departed = {
                broker_id: until_ms
                for broker_id, until_ms in self._departed.items()
                if until_ms > now_ms
            }
        for broker in self.image.brokers.values():
            endpoint = broker.listeners.get(listener_name)
            if endpoint is not None and (not broker.fenced or broker.id in self._departed):
                yield broker, endpoint

    def endpoint(self, broker_id: int, listener_name: str) -> Endpoint | None:
        """Where a live broker can be reached; None if it cannot."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        return broker.listeners.get(listener_name)
