"""Create and delete topics, and add partitions to them (KIP-4, KIP-195)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, errors_by_name
from barnabas.client.errors import broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.errors import BrokerError
    from barnabas.protocol.schema import Message

__all__ = [
    "NewPartitions",
    "NewTopic",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "delete_topics_by_id",
]

# From this version on, the request names topics by a struct of name and id.
_DELETE_BY_STRUCT_FROM = 6


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
