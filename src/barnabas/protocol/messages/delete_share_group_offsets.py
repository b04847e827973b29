"""DeleteShareGroupOffsets: API key 92, version 0, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, UUID, Message, Struct, array, field


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(STRING, "0+")


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions="0", flexible="0+"):
    group_id: str = field(STRING, "0+")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(
        array(DeleteShareGroupOffsetsRequestTopic), "0+"
    )


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(STRING, "0+")
    topic_id: bytes = field(UUID, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(
        array(DeleteShareGroupOffsetsResponseTopic), "0+"
    )
