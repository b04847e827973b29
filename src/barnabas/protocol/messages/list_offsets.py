"""ListOffsets: API key 2, versions 0-11, flexible 6+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class ListOffsetsPartition(Struct):
    partition_index: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = field(INT64, "0+")
    max_num_offsets: int = field(INT32, "0", default=1)


class ListOffsetsTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition), "0+")


class ListOffsetsRequest(Message, api_key=2, versions="0-11", flexible="6+"):
    replica_id: int = field(INT32, "0+")
    isolation_level: int = field(INT8, "2+", default=0)
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic), "0+")
    timeout_ms: int = field(INT32, "10+", default=0, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    old_style_offsets: list[int] = field(array(INT64), "0", default=[])
    timestamp: int = field(INT64, "1+", default=-1)
    offset: int = field(INT64, "1+", default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = field(STRING, "0+")
    partitions: list[ListOffsetsPartitionResponse] = field(
        array(ListOffsetsPartitionResponse), "0+"
    )


class ListOffsetsResponse(Message, api_key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse), "0+")
