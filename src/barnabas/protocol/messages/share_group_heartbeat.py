"""ShareGroupHeartbeat: API key 76, version 1, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, UUID, Message, Struct, array, field


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    group_id: str = field(STRING, "0+")
    member_id: str = field(STRING, "0+")
    member_epoch: int = field(INT32, "0+")
    rack_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = field(
        array(STRING), "0+", nullable="0+", default=None
    )


class TopicPartitions(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions), "0+")


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    member_epoch: int = field(INT32, "0+")
    heartbeat_interval_ms: int = field(INT32, "0+")
    assignment: Assignment | None = field(Assignment, "0+", nullable="0+", default=None)
