"""DescribeQuorum: API key 55, versions 0-2, flexible 0+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
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


class TopicDataRequest(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataRequest] = field(array(PartitionDataRequest), "0+")


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    topics: list[TopicDataRequest] = field(array(TopicDataRequest), "0+")


class ReplicaState(Struct):
    replica_id: int = field(INT32, "0+")
    replica_directory_id: bytes = field(UUID, "2+", default=ZERO_UUID)
    log_end_offset: int = field(INT64, "0+")
    last_fetch_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)


class PartitionDataResponse(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "2+", nullable="2+", default="", ignorable=True)
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    high_watermark: int = field(INT64, "0+")
    current_voters: list[ReplicaState] = field(array(ReplicaState), "0+")
    observers: list[ReplicaState] = field(array(ReplicaState), "0+")


class TopicDataResponse(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionDataResponse] = field(array(PartitionDataResponse), "0+")


class Listener(Struct):
    name: str = field(STRING, "2+")
    host: str = field(STRING, "2+")
    port: int = field(UINT16, "2+")


class Node(Struct):
    node_id: int = field(INT32, "2+")
    listeners: list[Listener] = field(array(Listener), "2+")


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "2+", nullable="2+", default="", ignorable=True)
    topics: list[TopicDataResponse] = field(array(TopicDataResponse), "0+")
    nodes: list[Node] = field(array(Node), "2+", default=[])
