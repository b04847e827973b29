"""CreateTopics: API key 19, versions 0-7, flexible 5+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT8,
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


class CreatableReplicaAssignment(Struct):
    partition_index: int = field(INT32, "0+")
    broker_ids: list[int] = field(array(INT32), "0+")


class CreatableTopicConfig(Struct):
    name: str = field(STRING, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")


class CreatableTopic(Struct):
    name: str = field(STRING, "0+")
    num_partitions: int = field(INT32, "0+")
    replication_factor: int = field(INT16, "0+")
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment), "0+")
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig), "0+")


class CreateTopicsRequest(Message, api_key=19, versions="0-7", flexible="5+"):
    topics: list[CreatableTopic] = field(array(CreatableTopic), "0+")
    timeout_ms: int = field(INT32, "0+", default=60000)
    validate_only: bool = field(BOOL, "1+", default=False)


class CreatableTopicConfigs(Struct):
    name: str = field(STRING, "5+")
    value: str | None = field(STRING, "5+", nullable="5+")
    read_only: bool = field(BOOL, "5+")
    config_source: int = field(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, "5+")


class CreatableTopicResult(Struct):
    name: str = field(STRING, "0+")
    topic_id: bytes = field(UUID, "7+", default=ZERO_UUID, ignorable=True)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "1+", nullable="0+", default="", ignorable=True)
    topic_config_error_code: int = field(INT16, "5+", default=0, tag=0, ignorable=True)
    num_partitions: int = field(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = field(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs), "5+", nullable="5+", default=[], ignorable=True
    )


class CreateTopicsResponse(Message, api_key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult), "0+")
