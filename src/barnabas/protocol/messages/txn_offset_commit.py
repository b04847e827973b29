"""TxnOffsetCommit: API key 28, versions 0-6, flexible 3+;
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


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32, "0+")
    committed_offset: int = field(INT64, "0+")
    committed_leader_epoch: int = field(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, "0+", nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(STRING, "0-5", default="", ignorable=True)
    topic_id: bytes = field(UUID, "6+", default=ZERO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = field(
        array(TxnOffsetCommitRequestPartition), "0+"
    )


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-6", flexible="3+"):
    transactional_id: str = field(STRING, "0+")
    group_id: str = field(STRING, "0+")
    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT16, "0+")
    generation_id_or_member_epoch: int = field(INT32, "3+", default=-1)
    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic), "0+")


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(STRING, "0-5", default="", ignorable=True)
    topic_id: bytes = field(UUID, "6+", default=ZERO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = field(
        array(TxnOffsetCommitResponsePartition), "0+"
    )


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field(array(TxnOffsetCommitResponseTopic), "0+")
