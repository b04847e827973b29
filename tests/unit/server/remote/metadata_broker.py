"""A broker in virtual time that reads and writes the metadata topic, and events for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from barnabas.protocol.record_frame import encode_metadata_record
from barnabas.server.peers.own_broker_channel import AnyBrokerChannels
from barnabas.server.remote.metadata_topic import RemoteMetadataTopic
from barnabas.storage.remote.config import MetadataTopicConfig
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC
from barnabas.storage.topic_partition import TopicIdPartition
from unit.server.simulated_broker import SimulatedBroker
from unit.storage.remote.remote_log_stories import WHERE, name_of, start, update

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Record
    from barnabas.server.process.node import Node

OTHER = TopicIdPartition(b"fedcba9876543210", "payments", 0)
# All user partitions are in one metadata partition.
ONE_PARTITION = MetadataTopicConfig(remote_log_metadata_topic_num_partitions=1)
GZIP = 1


def attach(
    node: Node, config: MetadataTopicConfig, *, follows_images: bool = True
) -> RemoteMetadataTopic:
    """Return the metadata topic of a broker, which follows its images or not."""
    server: Any = node.broker
    own = server._peers
    peers = replace(own, channels=AnyBrokerChannels(lambda: server.replicas, own))
    metadata = RemoteMetadataTopic(config, peers, server._auto_topics, server._conversions)
    if follows_images:
        node.shared.publisher.add_listener(lambda *_: metadata.on_image())
    return metadata


class MetadataBroker:
    """One broker, and its metadata topic."""

    def __init__(self, config: MetadataTopicConfig = ONE_PARTITION, **settings: str) -> None:
        self.broker = SimulatedBroker(**settings)
        self.config = config
        self.metadata = attach(self.broker.node, config)
        self.metadata.start()

    def restart(self) -> None:
        """Restart the broker with a new metadata topic."""
        self.broker.stop()
        self.broker.restart()
        self.metadata = attach(self.broker.node, self.config)
        self.metadata.start()

    def until(self, predicate: Callable[[], bool]) -> None:
        """Advance virtual time until the condition holds."""
        assert self.broker.world.run_until(predicate)

    def run_for(self, duration_ms: float) -> None:
        """Advance virtual time."""
        self.broker.world.run_for(duration_ms)

    def assign(self, *partitions: TopicIdPartition) -> None:
        """Assign partitions, and wait until they are ready."""
        self.metadata.assign(partitions)
        self.until(lambda: all(self.metadata.log_of(each) is not None for each in partitions))

    def publish(self, record: Any, where: TopicIdPartition = WHERE) -> Any:
        """Publish an event, and return its result."""
        outcome: list[Any] = []
        self.metadata.publish(where, record, outcome.append)
        assert not outcome, "the callback came before the call returned"
        self.until(lambda: bool(outcome))
        return outcome[0]

    def write(self, *values: bytes | None, compression: int = 0) -> None:
        """Write records to the topic like any client."""
        made: Any = self.broker.produce(REMOTE_LOG_TOPIC, *values, compression=compression)  # type: ignore[arg-type]
        assert made.error_code == 0

    def names(self, where: TopicIdPartition = WHERE) -> list[str]:
        """Return the names of the segments of a partition."""
        log = self.metadata.log_of(where)
        return [] if log is None else [name_of(each.id) for each in log.segments()]


def encoded(record: Record) -> bytes:
    """Return an event as the value of a record."""
    return encode_metadata_record(record, 0)


def copied(name: str, first: int, where: TopicIdPartition = WHERE) -> list[bytes]:
    """Return the events of a finished segment of 10 records."""
    return [
        encoded(start(name, (first, first + 9), [(0, first)], where=where)),
        encoded(update(name, 1, where=where)),
    ]
