"""AlterShareGroupOffsets: API key 91, version 0, flexible 0+;
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


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = field(INT32, "0+")
    start_offset: int = field(INT64, "0+")


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(STRING, "0+")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(
        array(AlterShareGroupOffsetsRequestPartition), "0+"
    )


class AlterShareGroupOffsetsRequest(Message, api_key=91, versions="0", flexible="0+"):
    group_id: str = field(STRING, "0+")
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(
        array(AlterShareGroupOffsetsRequestTopic), "0+"
    )


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(STRING, "0+")
    topic_id: bytes = field(UUID, "0+")
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(
        array(AlterShareGroupOffsetsResponsePartition), "0+"
    )


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(
        array(AlterShareGroupOffsetsResponseTopic), "0+"
    )
