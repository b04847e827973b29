"""DeleteTopics: API key 20, versions 0-6, flexible 4+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    INT16,
    INT32,
    STRING,
    UUID,
    ZERO_UUID,
    Message,
    Struct,
    array,
    field,
)


class DeleteTopicState(Struct):
    name: str | None = field(STRING, "6+", nullable="6+", default=None)
    topic_id: bytes = field(UUID, "6+")


class DeleteTopicsRequest(Message, api_key=20, versions="0-6", flexible="4+"):
    topics: list[DeleteTopicState] = field(array(DeleteTopicState), "6+", default=[])
    topic_names: list[str] = field(array(STRING), "0-5", default=[], ignorable=True)
    timeout_ms: int = field(INT32, "0+")


class DeletableTopicResult(Struct):
    name: str | None = field(STRING, "0+", nullable="6+")
    topic_id: bytes = field(UUID, "6+", default=ZERO_UUID, ignorable=True)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api_key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult), "0+")
