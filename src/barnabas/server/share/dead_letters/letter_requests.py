"""The requests with which a broker creates and writes dead-letter topics (KIP-1191)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.server.share.dead_letters.dead_letter_settings import ENABLED
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.messages.produce import ProduceResponse
    from barnabas.server.cluster.cluster_view import ClusterView

# Number of partitions or replicas that the controller replaces by its default.
_DEFAULT = -1
_ACKS_ALL = -1


def create_request(topic: str, timeout_ms: int) -> CreateTopicsRequest:
    """Return the request that creates a dead-letter topic.

    The records have the time of the write as their timestamp, whatever the broker's default is.
    """
    configs = {ENABLED: "true", "message.timestamp.type": "CreateTime"}
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=_DEFAULT,
                replication_factor=_DEFAULT,
                assignments=[],
                configs=[
                    CreatableTopicConfig(name=name, value=value) for name, value in configs.items()
                ],
            )
        ],
        timeout_ms=timeout_ms,
        validate_only=False,
    )


def produce_request(
    cluster: ClusterView, batches: Mapping[TopicPartition, bytearray], timeout_ms: int
) -> ProduceRequest:
    """Return the request that writes batches. Topics that were deleted meanwhile are left out."""
    topics: dict[bytes, TopicProduceData] = {}
    for key, batch in batches.items():
        topic_id = cluster.topic_id(key.topic)
        if topic_id is None:
            continue
        data = topics.setdefault(
            topic_id, TopicProduceData(name=key.topic, topic_id=topic_id, partition_data=[])
        )
        data.partition_data.append(PartitionProduceData(index=key.partition, records=batch))
    return ProduceRequest(
        transactional_id=None,
        acks=_ACKS_ALL,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )


def results_of(cluster: ClusterView, response: ProduceResponse) -> dict[TopicPartition, ErrorCode]:
    """Return the error of each partition in a response."""
    results: dict[TopicPartition, ErrorCode] = {}
    for topic in response.responses:
        name = cluster.topic_name(topic.topic_id)
        if name is not None:
            for each in topic.partition_responses:
                results[TopicPartition(name, each.index)] = ErrorCode.of(each.error_code)
    return results
