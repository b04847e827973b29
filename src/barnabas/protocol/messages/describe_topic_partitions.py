"""DescribeTopicPartitions: API key 75, version 0, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, UUID, Message, Struct, array, field


class TopicRequest(Struct):
    name: str = field(STRING, "0+")


class CursorRequest(Struct):
    topic_name: str = field(STRING, "0+")
    partition_index: int = field(INT32, "0+")


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field(array(TopicRequest), "0+")
    response_partition_limit: int = field(INT32, "0+", default=2000)
    cursor: CursorRequest | None = field(CursorRequest, "0+", nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = field(INT16, "0+")
    partition_index: int = field(INT32, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32), "0+")
    isr_nodes: list[int] = field(array(INT32), "0+")
    eligible_leader_replicas: list[int] | None = field(
        array(INT32), "0+", nullable="0+", default=None
    )
    last_known_elr: list[int] | None = field(array(INT32), "0+", nullable="0+", default=None)
    offline_replicas: list[int] = field(array(INT32), "0+", ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = field(INT16, "0+")
    name: str | None = field(STRING, "0+", nullable="0+")
    topic_id: bytes = field(UUID, "0+", ignorable=True)
    is_internal: bool = field(BOOL, "0+", default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        array(DescribeTopicPartitionsResponsePartition), "0+"
    )
    topic_authorized_operations: int = field(INT32, "0+", default=-2147483648)


class CursorResponse(Struct):
    topic_name: str = field(STRING, "0+")
    partition_index: int = field(INT32, "0+")


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(
        array(DescribeTopicPartitionsResponseTopic), "0+"
    )
    next_cursor: CursorResponse | None = field(CursorResponse, "0+", nullable="0+", default=None)
