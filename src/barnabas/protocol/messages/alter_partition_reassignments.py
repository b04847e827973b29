"""AlterPartitionReassignments: API key 45, versions 0-1, flexible 0+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, Message, Struct, array, field


class ReassignablePartition(Struct):
    partition_index: int = field(INT32, "0+")
    replicas: list[int] | None = field(array(INT32), "0+", nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition), "0+")


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = field(INT32, "0+", default=60000)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic), "0+")


class ReassignablePartitionResponse(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = field(STRING, "0+")
    partitions: list[ReassignablePartitionResponse] = field(
        array(ReassignablePartitionResponse), "0+"
    )


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True, ignorable=True)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse), "0+")
