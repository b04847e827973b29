"""OffsetForLeaderEpoch: API key 23, versions 0-4, flexible 4+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class OffsetForLeaderPartition(Struct):
    partition: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "2+", default=-1, ignorable=True)
    leader_epoch: int = field(INT32, "0+")


class OffsetForLeaderTopic(Struct):
    topic: str = field(STRING, "0+")
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition), "0+")


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="0-4", flexible="4+"):
    replica_id: int = field(INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic), "0+")


class EpochEndOffset(Struct):
    error_code: int = field(INT16, "0+")
    partition: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "1+", default=-1, ignorable=True)
    end_offset: int = field(INT64, "0+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = field(STRING, "0+")
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset), "0+")


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult), "0+")
