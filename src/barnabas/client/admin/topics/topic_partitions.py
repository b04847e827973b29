"""Describes topics by partition, with eligible leader replicas (KIP-966).

Responses come in pages. Brokers before 3.8 lack the API; the client then uses Metadata, which does
not contain the eligible leader replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import ClientError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_topic_partitions import (
    CursorRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.protocol.schema import Message

__all__ = [
    "Cursor",
    "PartitionState",
    "TopicListing",
    "TopicPage",
    "TopicState",
    "describe_topic_partitions",
    "describe_topics_by_metadata",
    "list_topics",
]

_AUTO_CREATION_FROM = 4


class Cursor(NamedTuple):
    """Topic and partition at which the next page begins."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """State of one partition according to the controller; replicas are broker ids."""

    number: int
    # -1 while the partition has no leader.
    leader: int
    # -1 if the broker does not send it.
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    # Replicas outside the ISR that have all committed records; None if the broker is too old.
    elr: tuple[int, ...] | None
    # The last known in-sync replicas after an unclean loss of the others; None as above.
    last_known_elr: tuple[int, ...] | None
    # Replicas on brokers that are down, or in failed log directories.
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic with its partitions by number."""

    name: str
    # 16 bytes; all zero if the broker does not send it.
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionState]


@dataclass(frozen=True, slots=True)
class TopicListing:
    """Name and id of an existing topic."""

    name: str
    # 16 bytes; all zero if the broker does not send it.
    topic_id: bytes
    is_internal: bool


@dataclass(frozen=True, slots=True)
class TopicPage:
    """A page of partitions, and the cursor of the next page (None at the end)."""

    topics: dict[str, TopicState | ClientError]
    next_cursor: Cursor | None


def describe_topic_partitions(names: Sequence[str], cursor: Cursor | None) -> AdminCall[TopicPage]:
    """Describe a page of the named topics; no names means all topics."""

    def build(_version: int) -> Message:
        request = DescribeTopicPartitionsRequest(
            # The broker requires the names in order.
            topics=[TopicRequest(name=name) for name in sorted(names)]
        )
        if cursor is not None:
            request.cursor = CursorRequest(
                topic_name=cursor.topic, partition_index=cursor.partition
            )
        return request

    def read(response: Message) -> TopicPage:
        assert isinstance(response, DescribeTopicPartitionsResponse)
        found = {topic.name or "": _topic(topic, _state) for topic in response.topics}
        following = response.next_cursor
        if following is None:
            return TopicPage(found, None)
        return TopicPage(found, Cursor(following.topic_name, following.partition_index))

    return AdminCall(ApiKey.DESCRIBE_TOPIC_PARTITIONS, build, read)


def _topic(topic: Any, state: Callable[[Any], PartitionState]) -> TopicState | ClientError:
    """Convert a topic of either API; `state` converts its partitions."""
    name = topic.name or ""
    if topic.error_code:
        return broker_error(topic.error_code, name)
    partitions = {each.partition_index: state(each) for each in topic.partitions}
    return TopicState(name, topic.topic_id, topic.is_internal, partitions)


def _state(partition: DescribeTopicPartitionsResponsePartition) -> PartitionState:
    elr, last_known = partition.eligible_leader_replicas, partition.last_known_elr
    return PartitionState(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        # A broker without the feature sends null or an empty list.
        tuple(elr or ()),
        tuple(last_known or ()),
        tuple(partition.offline_replicas),
    )


def _metadata_state(partition: MetadataResponsePartition) -> PartitionState:
    return PartitionState(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        None,
        None,
        tuple(partition.offline_replicas),
    )


def describe_topics_by_metadata(names: Sequence[str]) -> AdminCall[TopicPage]:
    """Describe topics with a Metadata request, in one page."""

    def build(version: int) -> Message:
        topics = [MetadataRequestTopic(name=name) for name in sorted(names)] or None
        return MetadataRequest(
            topics=topics, allow_auto_topic_creation=version < _AUTO_CREATION_FROM
        )

    def read(response: Message) -> TopicPage:
        assert isinstance(response, MetadataResponse)
        found = {topic.name or "": _topic(topic, _metadata_state) for topic in response.topics}
        return TopicPage(found, None)

    return AdminCall(ApiKey.METADATA, build, read)


def list_topics() -> AdminCall[dict[str, TopicListing]]:
    """List names and ids of all topics with Metadata; topics with an error are omitted."""

    def build(version: int) -> Message:
        return MetadataRequest(topics=None, allow_auto_topic_creation=version < _AUTO_CREATION_FROM)

    def read(response: Message) -> dict[str, TopicListing]:
        assert isinstance(response, MetadataResponse)
        raise_error(response.error_code, "list topics")
        return {
            topic.name: TopicListing(topic.name, topic.topic_id, topic.is_internal)
            for topic in response.topics
            if topic.name and not topic.error_code
        }

    return AdminCall(ApiKey.METADATA, build, read)
