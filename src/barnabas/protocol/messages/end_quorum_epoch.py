"""EndQuorumEpoch: API key 54, versions 0-1, flexible 1+;
served on controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Message,
    Struct,
    array,
    field,
)


class ReplicaInfo(Struct):
    candidate_id: int = field(INT32, "1+")
    candidate_directory_id: bytes = field(UUID, "1+")


class PartitionDataRequest(Struct):
    partition_index: int = field(INT32, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    preferred_successors: list[int] = field(array(INT32), "0", default=[], ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field(
        array(ReplicaInfo), "1+", default=[], ignorable=True
    )


class TopicDataRequest(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataRequest] = field(array(PartitionDataRequest), "0+")


class LeaderEndpoint(Struct):
    name: str = field(STRING, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class EndQuorumEpochRequest(Message, api_key=54, versions="0-1", flexible="1+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    topics: list[TopicDataRequest] = field(array(TopicDataRequest), "0+")
    leader_endpoints: list[LeaderEndpoint] = field(
        array(LeaderEndpoint), "1+", default=[], ignorable=True
    )


class PartitionDataResponse(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")


class TopicDataResponse(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataResponse] = field(array(PartitionDataResponse), "0+")


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class EndQuorumEpochResponse(Message, api_key=54, versions="0-1", flexible="1+"):
    error_code: int = field(INT16, "0+")
    topics: list[TopicDataResponse] = field(array(TopicDataResponse), "0+")
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", default=[], tag=0)
