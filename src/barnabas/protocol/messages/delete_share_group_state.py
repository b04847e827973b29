"""DeleteShareGroupState: API key 86, version 0, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, UUID, Message, Struct, array, field


class PartitionData(Struct):
    partition: int = field(INT32, "0+")


class DeleteStateData(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[PartitionData] = field(array(PartitionData), "0+")


class DeleteShareGroupStateRequest(Message, api_key=86, versions="0", flexible="0+"):
    group_id: str = field(STRING, "0+")
    topics: list[DeleteStateData] = field(array(DeleteStateData), "0+")


class PartitionResult(Struct):
    partition: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[PartitionResult] = field(array(PartitionResult), "0+")


class DeleteShareGroupStateResponse(Message, api_key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = field(array(DeleteStateResult), "0+")
