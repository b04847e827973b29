"""Vote: API key 52, versions 0-2, flexible 0+;
served on controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    ZERO_UUID,
    Message,
    Struct,
    array,
    field,
)


class PartitionDataRequest(Struct):
    partition_index: int = field(INT32, "0+")
    replica_epoch: int = field(INT32, "0+")
    replica_id: int = field(INT32, "0+")
    replica_directory_id: bytes = field(UUID, "1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id: bytes = field(UUID, "1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch: int = field(INT32, "0+")
    last_offset: int = field(INT64, "0+")
    pre_vote: bool = field(BOOL, "2+", default=False)


class TopicDataRequest(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataRequest] = field(array(PartitionDataRequest), "0+")


class VoteRequest(Message, api_key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    voter_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[TopicDataRequest] = field(array(TopicDataRequest), "0+")


class PartitionDataResponse(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    vote_granted: bool = field(BOOL, "0+")


class TopicDataResponse(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataResponse] = field(array(PartitionDataResponse), "0+")


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class VoteResponse(Message, api_key=52, versions="0-2", flexible="0+"):
    error_code: int = field(INT16, "0+")
    topics: list[TopicDataResponse] = field(array(TopicDataResponse), "0+")
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", default=[], tag=0)
