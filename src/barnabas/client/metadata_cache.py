"""What the client knows of the cluster: nodes, topics by name and id, leaders with their epochs.

Fed by Metadata answers; never goes back to an older leader epoch of the same topic (KIP-320).
"""

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.topic_partition import TopicPartition
    from barnabas.protocol.messages.metadata import (
        MetadataResponse,
        MetadataResponseBroker,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

__all__ = ["MetadataCache", "NodeInfo", "PartitionInfo", "TopicInfo"]

ZERO_ID = bytes(16)
NO_LEADER = -1
_PORT_MAX = 65_535
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A broker as metadata names it."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: who leads it in which epoch, and its replicas."""

    partition: int
    # -1 while there is no leader.
    leader: int
    # -1 if the broker is too old to tell.
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic and its partitions by number."""

    name: str
    # All zero if the broker is too old to tell.
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]

    @property
    def available(self) -> list[int]:
        """Numbers of the partitions that have a leader, ascending."""
        return sorted(p.partition for p in self.partitions.values() if p.leader != NO_LEADER)


class MetadataCache:
    """Nodes and topics, as of the answers so far."""

    __slots__ = ("cluster_id", "controller_id", "errors", "generation", "names", "nodes", "topics")

    def __init__(self) -> None:
        self.nodes: dict[int, NodeInfo] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.topics: dict[str, TopicInfo] = {}
        # Topic names by id, for answers that carry only ids; kept after deletion is noticed no
        # longer than the topic itself.
        self.names: dict[bytes, str] = {}
        # Error code of topics that were asked for and could not be described.
        self.errors: dict[str, int] = {}
        # Counts the updates; users compare it to notice one.
        self.generation = 0

    def update(self, response: MetadataResponse, asked: Iterable[str] | None) -> None:
        """Take over an answer to a request for the topics `asked`, None for all topics."""
        self.generation += 1
        self.nodes = {
            broker.node_id: NodeInfo(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
            if _can_be_dialled(broker)
        }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        if asked is None:
            kept = {topic.name for topic in response.topics}
            for name in [name for name in self.topics if name not in kept]:
                self._drop(name)
        for topic in response.topics:
            self._update_topic(topic)

    def _update_topic(self, topic: MetadataResponseTopic) -> None:
        name = topic.name or self.names.get(topic.topic_id)
        if name is None:
            return
        if topic.error_code:
            self.errors[name] = topic.error_code
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._drop(name)
            return
        numbers = {partition.partition_index for partition in topic.partitions}
        if not numbers or numbers != set(range(len(topic.partitions))):
            # A topic has partitions, numbered from 0; else records would have no place.
            _log.warning("metadata not usable: topic=%s partitions=%d", name, len(topic.partitions))
            self.errors[name] = ErrorCode.UNKNOWN_SERVER_ERROR
            return
        self.errors.pop(name, None)
        known = self.topics.get(name)
        if known is not None and known.topic_id != topic.topic_id:
            self._drop(name)
            known = None
        before = known.partitions if known is not None else {}
        partitions = {
            partition.partition_index: _newer(
                before.get(partition.partition_index), _partition_info(partition)
            )
            for partition in topic.partitions
        }
        self.topics[name] = TopicInfo(name, topic.topic_id, topic.is_internal, partitions)
        if topic.topic_id != ZERO_ID:
            self.names[topic.topic_id] = name

    def _drop(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.names.pop(topic.topic_id, None)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """What is known of a partition."""
        topic = self.topics.get(tp.topic)
        return topic.partitions.get(tp.partition) if topic is not None else None

    def leader(self, tp: TopicPartition) -> int:
        """Node id of the leader, -1 if there is none or the partition is not known."""
        info = self.partition(tp)
        return info.leader if info is not None else NO_LEADER

    def topic_id(self, name: str) -> bytes:
        """The topic's id, all zero if not known."""
        topic = self.topics.get(name)
        return topic.topic_id if topic is not None else ZERO_ID

    def move_leader(self, tp: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Take over a leader that a produce or fetch answer named (KIP-951), if it is newer."""
        info = self.partition(tp)
        if info is None or leader not in self.nodes or leader_epoch <= info.leader_epoch:
            return False
        moved = replace(info, leader=leader, leader_epoch=leader_epoch)
        self.topics[tp.topic].partitions[tp.partition] = moved
        return True

    def similar(self, name: str) -> list[str]:
        """Known topics with names close to `name`, for error messages."""
        return difflib.get_close_matches(name, list(self.topics), n=3)


def _can_be_dialled(broker: MetadataResponseBroker) -> bool:
    """Whether a broker has an id of a broker, and an address that a connection can be made to.

    Negative ids mean bootstrap servers here, and any broker.
    """
    is_sound = broker.node_id >= 0 and bool(broker.host) and 0 < broker.port <= _PORT_MAX
    if not is_sound:
        _log.warning(
            "metadata not usable: broker=%d address=%r:%d",
            *(broker.node_id, broker.host, broker.port),
        )
    return is_sound


def _partition_info(partition: MetadataResponsePartition) -> PartitionInfo:
    return PartitionInfo(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
        partition.error_code,
    )


def _newer(known: PartitionInfo | None, told: PartitionInfo) -> PartitionInfo:
    """What was told, unless it is of an older leader epoch: a broker may lag behind another."""
    if known is None or told.leader_epoch < 0 or told.leader_epoch >= known.leader_epoch:
        return told
    return known
