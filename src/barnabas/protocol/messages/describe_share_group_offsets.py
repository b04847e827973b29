"""DescribeShareGroupOffsets: API key 90, versions 0-1, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Message,
    Struct,
    array,
    field,
)


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = field(STRING, "0+")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(
        array(DescribeShareGroupOffsetsRequestTopic), "0+", nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions="0-1", flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(
        array(DescribeShareGroupOffsetsRequestGroup), "0+"
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(INT32, "0+")
    start_offset: int = field(INT64, "0+")
    leader_epoch: int = field(INT32, "0+")
    lag: int = field(INT64, "1+", default=-1, ignorable=True)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(STRING, "0+")
    topic_id: bytes = field(UUID, "0+")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(
        array(DescribeShareGroupOffsetsResponsePartition), "0+"
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = field(STRING, "0+")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(
        array(DescribeShareGroupOffsetsResponseTopic), "0+"
    )
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(
        array(DescribeShareGroupOffsetsResponseGroup), "0+"
    )
