"""CreatePartitions: API key 37, versions 0-3, flexible 2+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, STRING, Message, Struct, array, field


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = field(array(INT32), "0+")


class CreatePartitionsTopic(Struct):
    name: str = field(STRING, "0+")
    count: int = field(INT32, "0+")
    assignments: list[CreatePartitionsAssignment] | None = field(
        array(CreatePartitionsAssignment), "0+", nullable="0+"
    )


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic), "0+")
    timeout_ms: int = field(INT32, "0+")
    validate_only: bool = field(BOOL, "0+")


class CreatePartitionsTopicResult(Struct):
    name: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult), "0+")
