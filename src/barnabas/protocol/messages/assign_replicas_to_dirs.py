"""AssignReplicasToDirs: API key 73, version 0, flexible 0+;
served on controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, UUID, Message, Struct, array, field


class PartitionDataRequest(Struct):
    partition_index: int = field(INT32, "0+")


class TopicDataRequest(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[PartitionDataRequest] = field(array(PartitionDataRequest), "0+")


class DirectoryDataRequest(Struct):
    id: bytes = field(UUID, "0+")
    topics: list[TopicDataRequest] = field(array(TopicDataRequest), "0+")


class AssignReplicasToDirsRequest(Message, api_key=73, versions="0", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
    directories: list[DirectoryDataRequest] = field(array(DirectoryDataRequest), "0+")


class PartitionDataResponse(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class TopicDataResponse(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[PartitionDataResponse] = field(array(PartitionDataResponse), "0+")


class DirectoryDataResponse(Struct):
    id: bytes = field(UUID, "0+")
    topics: list[TopicDataResponse] = field(array(TopicDataResponse), "0+")


class AssignReplicasToDirsResponse(Message, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    directories: list[DirectoryDataResponse] = field(array(DirectoryDataResponse), "0+")
