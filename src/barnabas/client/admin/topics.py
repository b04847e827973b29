"""Topics: create, delete and describe them, and add partitions (KIP-4, KIP-195, KIP-966).

Descriptions by partition have the eligible leader replicas, and come in pages. Brokers before 3.8
lack the API; the client then uses Metadata, which does not contain these replicas.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.admin.call import AdminCall, errors_by_name, raise_error
from barnabas.client.errors import ClientError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.metadata import (
    CursorRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    TopicRequest,
)
from barnabas.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.primitives import uuid_to_string

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.client.errors import BrokerError
    from barnabas.protocol.schema import Message

__all__ = ["NewPartitions", "NewTopic", "PartitionState", "TopicListing", "TopicState"]

# From this version on, the request names topics by a struct of name and id.
_DELETE_BY_STRUCT_FROM = 6
_AUTO_CREATION_FROM = 4


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 means the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    # Replicas (broker ids) by partition, preferred leader first. With assignments, partitions and
    # replication_factor stay -1.
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new number of partitions of a topic, and the replicas of the added partitions."""

    count: int
    # Replicas (broker ids) of each added partition, in order; None lets the controller choose.
    assignments: Sequence[Sequence[int]] | None = None


def create_topics(
    topics: Sequence[NewTopic], timeout_ms: int, *, validate_only: bool
) -> AdminCall[dict[str, bytes | BrokerError]]:
    """Create topics; return the id or an error for each. Old brokers return ids of zeros."""

    def build(_version: int) -> Message:
        return CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )

    def read(response: Message) -> dict[str, bytes | BrokerError]:
        assert isinstance(response, CreateTopicsResponse)
        results = [(t.name, t.error_code, t.error_message) for t in response.topics]
        errors = errors_by_name("create topic", results)
        return {t.name: errors[t.name] or t.topic_id for t in response.topics}

    return AdminCall(ApiKey.CREATE_TOPICS, build, read)


def delete_topics(
    names: Sequence[str], timeout_ms: int
) -> AdminCall[dict[str, bytes | BrokerError]]:
    """Delete topics by name; return the id or an error for each, as `create_topics`."""

    def build(version: int) -> Message:
        if version >= _DELETE_BY_STRUCT_FROM:
            return DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name, topic_id=bytes(16)) for name in names],
                timeout_ms=timeout_ms,
            )
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)

    def read(response: Message) -> dict[str, bytes | BrokerError]:
        assert isinstance(response, DeleteTopicsResponse)
        results = [(t.name or "", t.error_code, t.error_message) for t in response.responses]
        errors = errors_by_name("delete topic", results)
        return {t.name or "": errors[t.name or ""] or t.topic_id for t in response.responses}

    return AdminCall(ApiKey.DELETE_TOPICS, build, read)


def delete_topics_by_id(
    ids: Sequence[bytes], timeout_ms: int
) -> AdminCall[dict[bytes, BrokerError | None]]:
    """Delete topics by id; return an error or None for each."""

    def build(version: int) -> Message:
        if version < _DELETE_BY_STRUCT_FROM:
            raise ProtocolError("requests before version 6 cannot delete topics by id")
        return DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=each) for each in ids],
            timeout_ms=timeout_ms,
        )

    def read(response: Message) -> dict[bytes, BrokerError | None]:
        assert isinstance(response, DeleteTopicsResponse)
        return {
            each.topic_id: broker_error(
                each.error_code, f"delete topic {uuid_to_string(each.topic_id)}", each.error_message
            )
            if each.error_code
            else None
            for each in response.responses
        }

    return AdminCall(ApiKey.DELETE_TOPICS, build, read)


def create_partitions(
    counts: Mapping[str, int | NewPartitions], timeout_ms: int, *, validate_only: bool = False
) -> AdminCall[dict[str, BrokerError | None]]:
    """Increase the number of partitions of topics to `counts`; an error or None for each."""

    def build(_version: int) -> Message:
        return CreatePartitionsRequest(
            topics=[
                _added_partitions(
                    name, new if isinstance(new, NewPartitions) else NewPartitions(new)
                )
                for name, new in counts.items()
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )

    def read(response: Message) -> dict[str, BrokerError | None]:
        assert isinstance(response, CreatePartitionsResponse)
        results = [(t.name, t.error_code, t.error_message) for t in response.results]
        return errors_by_name("create partitions of", results)

    return AdminCall(ApiKey.CREATE_PARTITIONS, build, read)


def _added_partitions(name: str, new: NewPartitions) -> CreatePartitionsTopic:
    assignments = None
    if new.assignments is not None:
        assignments = [
            CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in new.assignments
        ]
    return CreatePartitionsTopic(name=name, count=new.count, assignments=assignments)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in topic.assignments.items()
        ],
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
    )


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
