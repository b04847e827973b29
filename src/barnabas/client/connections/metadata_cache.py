"""The client's metadata: nodes, topics by name and id, and partition leaders with their epochs.

Metadata responses update it. It never returns to an older leader epoch of the same topic (KIP-320).
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
# Brokers that lag behind by more deletions than this are not recognized.
_DELETED_MAX = 1_000
_PORT_MAX = 65_535
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A broker as the metadata describes it."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """The address as HOST:PORT."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: its leader, leader epoch and replicas."""

    partition: int
    # Node id of the leader; -1 if there is none.
    leader: int
    # Leader epoch; -1 if the broker is too old to report it.
    leader_epoch: int
    # Node ids of all replicas, of the in-sync ones, and of the offline ones.
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic and its partitions by number."""

    name: str
    # The topic's id (16 bytes); all zero if the broker is too old to report it.
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]

    @property
    def available(self) -> list[int]:
        """Numbers of the partitions that have a leader, ascending."""
        return sorted(p.partition for p in self.partitions.values() if p.leader != NO_LEADER)


class MetadataCache:
    """Nodes and topics as of the latest responses."""

    __slots__ = (
        "_deleted",
        "cluster_id",
        "controller_id",
        "errors",
        "generation",
        "names",
        "nodes",
        "topics",
    )

    def __init__(self) -> None:
        # All brokers of the latest response that have a valid id and address, by node id.
        self.nodes: dict[int, NodeInfo] = {}
        self.cluster_id: str | None = None
        # Node id of the controller; -1 if unknown.
        self.controller_id = -1
        # Known topics by name; partitions may be replaced in place by `move_leader`.
        self.topics: dict[str, TopicInfo] = {}
        # Topic names by id, for responses that contain only ids; removed together with the topic.
        self.names: dict[bytes, str] = {}
        # Error codes by topic name, from the latest response about each topic; no entry without an
        # error.
        self.errors: dict[str, int] = {}
        # Number of updates; a change shows that metadata was updated.
        self.generation = 0
        # Ids of topics that were deleted as this client knows for certain, the oldest first.
        self._deleted: dict[bytes, None] = {}

    def update(self, response: MetadataResponse, requested: Iterable[str] | None) -> None:
        """Apply a response to a request for the topics `requested`; None means all topics."""
        self.generation += 1
        self.nodes = {
            broker.node_id: NodeInfo(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
            if _has_valid_address(broker)
        }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        if requested is None:
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
            # A topic must have partitions numbered from 0; records could not be assigned otherwise.
            _log.warning("metadata not usable: topic=%s partitions=%d", name, len(topic.partitions))
            self.errors[name] = ErrorCode.UNKNOWN_SERVER_ERROR
            return
        known = self.topics.get(name)
        if topic.topic_id in self._deleted:
            if known is None:
                self.errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        self.errors.pop(name, None)
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

    def note_deleted(self, topic_ids: Iterable[bytes]) -> None:
        """Drop deleted topics, and ignore brokers that still describe them.

        A broker that lags behind describes a deleted topic, and accepts records for it, which are
        lost with the topic. An id is never used again.
        """
        for topic_id in topic_ids:
            if topic_id == ZERO_ID:
                continue
            if topic_id in self.names:
                self._drop(self.names[topic_id])
            self._deleted[topic_id] = None
            if len(self._deleted) > _DELETED_MAX:
                del self._deleted[next(iter(self._deleted))]

    def _drop(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.names.pop(topic.topic_id, None)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """Return the information about a partition; None if it is unknown."""
        topic = self.topics.get(tp.topic)
        return topic.partitions.get(tp.partition) if topic is not None else None

    def leader(self, tp: TopicPartition) -> int:
        """Return the node id of the leader; -1 if the partition has none or is unknown."""
        info = self.partition(tp)
        return info.leader if info is not None else NO_LEADER

    def topic_id(self, name: str) -> bytes:
        """Return the topic's id; all zero if it is unknown."""
        topic = self.topics.get(name)
        return topic.topic_id if topic is not None else ZERO_ID

    def move_leader(self, tp: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Apply a leader from a produce or fetch response (KIP-951) if it is newer.

        Returns:
            Whether the leader was newer and was applied.
        """
        info = self.partition(tp)
        if info is None or leader not in self.nodes or leader_epoch <= info.leader_epoch:
            return False
        moved = replace(info, leader=leader, leader_epoch=leader_epoch)
        self.topics[tp.topic].partitions[tp.partition] = moved
        return True

    def similar(self, name: str) -> list[str]:
        """Return up to three known topics with names similar to `name`, for error messages."""
        return difflib.get_close_matches(name, list(self.topics), n=3)


def _has_valid_address(broker: MetadataResponseBroker) -> bool:
    """Return whether a broker has a valid id and an address that the client can connect to.

    Negative ids are reserved for bootstrap servers and for calls to any broker.
    """
    is_valid = broker.node_id >= 0 and bool(broker.host) and 0 < broker.port <= _PORT_MAX
    if not is_valid:
        _log.warning(
            "metadata not usable: broker=%d address=%r:%d",
            *(broker.node_id, broker.host, broker.port),
        )
    return is_valid


def _partition_info(partition: MetadataResponsePartition) -> PartitionInfo:
    return PartitionInfo(
        partition=partition.partition_index,
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
        offline_replicas=tuple(partition.offline_replicas),
        error_code=partition.error_code,
    )


def _newer(known: PartitionInfo | None, reported: PartitionInfo) -> PartitionInfo:
    """Return the received information, unless the known leader epoch is newer.

    A broker may lag behind another one.
    """
    if known is None or reported.leader_epoch < 0 or reported.leader_epoch >= known.leader_epoch:
        return reported
    return known
