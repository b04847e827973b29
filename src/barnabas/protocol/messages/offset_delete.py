"""OffsetDelete: API key 47, version 0, never flexible;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(INT32, "0+")


class OffsetDeleteRequestTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[OffsetDeleteRequestPartition] = field(
        array(OffsetDeleteRequestPartition), "0+"
    )


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    group_id: str = field(STRING, "0+")
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic), "0+")


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class OffsetDeleteResponseTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[OffsetDeleteResponsePartition] = field(
        array(OffsetDeleteResponsePartition), "0+"
    )


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    error_code: int = field(INT16, "0+")
    throttle_time_ms: int = field(INT32, "0+", default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic), "0+")
