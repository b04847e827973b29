"""OffsetCommit: API key 8, versions 0-10, flexible 8+;
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
    ZERO_UUID,
    Message,
    Struct,
    array,
    field,
)


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32, "0+")
    committed_offset: int = field(INT64, "0+")
    committed_leader_epoch: int = field(INT32, "6+", default=-1, ignorable=True)
    commit_timestamp: int = field(INT64, "1", default=-1)
    committed_metadata: str | None = field(STRING, "0+", nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING, "0-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(
        array(OffsetCommitRequestPartition), "0+"
    )


class OffsetCommitRequest(Message, api_key=8, versions="0-10", flexible="8+"):
    group_id: str = field(STRING, "0+")
    generation_id_or_member_epoch: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING, "1+", default="", ignorable=True)
    group_instance_id: str | None = field(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = field(INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic), "0+")


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING, "0-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(
        array(OffsetCommitResponsePartition), "0+"
    )


class OffsetCommitResponse(Message, api_key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic), "0+")
