"""Produce requests of this broker by topic id, and the errors in their responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.messages.produce import ProduceResponse
    from barnabas.server.cluster.cluster_view import ClusterView

# The version of the requests: the first one with topic ids.
PRODUCE_VERSION = 13
_ACKS_ALL = -1


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


def errors_of(cluster: ClusterView, response: ProduceResponse) -> dict[TopicPartition, ErrorCode]:
    """Return the error of each partition in a response."""
    results: dict[TopicPartition, ErrorCode] = {}
    for topic in response.responses:
        name = cluster.topic_name(topic.topic_id)
        if name is not None:
            for each in topic.partition_responses:
                results[TopicPartition(name, each.index)] = ErrorCode.of(each.error_code)
    return results
