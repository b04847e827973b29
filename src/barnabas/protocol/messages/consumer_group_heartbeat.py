"""ConsumerGroupHeartbeat: API key 68, versions 0-1, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, UUID, Message, Struct, array, field


class TopicPartitionsRequest(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    group_id: str = field(STRING, "0+")
    member_id: str = field(STRING, "0+")
    member_epoch: int = field(INT32, "0+")
    instance_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, "0+", default=-1)
    subscribed_topic_names: list[str] | None = field(
        array(STRING), "0+", nullable="0+", default=None
    )
    subscribed_topic_regex: str | None = field(STRING, "1+", nullable="1+", default=None)
    server_assignor: str | None = field(STRING, "0+", nullable="0+", default=None)
    topic_partitions: list[TopicPartitionsRequest] | None = field(
        array(TopicPartitionsRequest), "0+", nullable="0+", default=None
    )


class TopicPartitionsResponse(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class Assignment(Struct):
    topic_partitions: list[TopicPartitionsResponse] = field(array(TopicPartitionsResponse), "0+")


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    member_epoch: int = field(INT32, "0+")
    heartbeat_interval_ms: int = field(INT32, "0+")
    assignment: Assignment | None = field(Assignment, "0+", nullable="0+", default=None)
