"""StreamsGroupHeartbeat: API key 88, versions 0-1, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    Message,
    Struct,
    array,
    field,
)


class KeyValue(Struct):
    key: str = field(STRING, "0+")
    value: str = field(STRING, "0+")


class TopicInfo(Struct):
    name: str = field(STRING, "0+")
    partitions: int = field(INT32, "0+")
    replication_factor: int = field(INT16, "0+")
    topic_configs: list[KeyValue] = field(array(KeyValue), "0+")


class CopartitionGroup(Struct):
    source_topics: list[int] = field(array(INT16), "0+")
    source_topic_regex: list[int] = field(array(INT16), "0+")
    repartition_source_topics: list[int] = field(array(INT16), "0+")


class Subtopology(Struct):
    subtopology_id: str = field(STRING, "0+")
    source_topics: list[str] = field(array(STRING), "0+")
    source_topic_regex: list[str] = field(array(STRING), "0+")
    state_changelog_topics: list[TopicInfo] = field(array(TopicInfo), "0+")
    repartition_sink_topics: list[str] = field(array(STRING), "0+")
    repartition_source_topics: list[TopicInfo] = field(array(TopicInfo), "0+")
    copartition_groups: list[CopartitionGroup] = field(array(CopartitionGroup), "0+")


class Topology(Struct):
    epoch: int = field(INT32, "0+")
    subtopologies: list[Subtopology] = field(array(Subtopology), "0+")


class TaskIdsRequest(Struct):
    subtopology_id: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class EndpointRequest(Struct):
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")


class TaskOffset(Struct):
    subtopology_id: str = field(STRING, "0+")
    partition: int = field(INT32, "0+")
    offset: int = field(INT64, "0+")


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions="0-1", flexible="0+"):
    group_id: str = field(STRING, "0+")
    member_id: str = field(STRING, "0+")
    member_epoch: int = field(INT32, "0+")
    endpoint_information_epoch: int = field(INT32, "0+")
    instance_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, "0+", default=-1)
    topology: Topology | None = field(Topology, "0+", nullable="0+", default=None)
    active_tasks: list[TaskIdsRequest] | None = field(
        array(TaskIdsRequest), "0+", nullable="0+", default=None
    )
    standby_tasks: list[TaskIdsRequest] | None = field(
        array(TaskIdsRequest), "0+", nullable="0+", default=None
    )
    warmup_tasks: list[TaskIdsRequest] | None = field(
        array(TaskIdsRequest), "0+", nullable="0+", default=None
    )
    process_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    user_endpoint: EndpointRequest | None = field(
        EndpointRequest, "0+", nullable="0+", default=None
    )
    client_tags: list[KeyValue] | None = field(array(KeyValue), "0+", nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = field(
        array(TaskOffset), "0+", nullable="0+", default=None
    )
    task_end_offsets: list[TaskOffset] | None = field(
        array(TaskOffset), "0+", nullable="0+", default=None
    )
    shutdown_application: bool = field(BOOL, "0+", default=False)


class Status(Struct):
    status_code: int = field(INT8, "0+")
    status_detail: str = field(STRING, "0+")


class TaskIdsResponse(Struct):
    subtopology_id: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class EndpointResponse(Struct):
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")


class TopicPartition(Struct):
    topic: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class EndpointToPartitions(Struct):
    user_endpoint: EndpointResponse = field(EndpointResponse, "0+")
    active_partitions: list[TopicPartition] = field(array(TopicPartition), "0+")
    standby_partitions: list[TopicPartition] = field(array(TopicPartition), "0+")


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    member_id: str = field(STRING, "0+")
    member_epoch: int = field(INT32, "0+")
    heartbeat_interval_ms: int = field(INT32, "0+")
    acceptable_recovery_lag_legacy: int = field(INT32, "0", default=0)
    task_offset_interval_ms: int = field(INT32, "0+")
    acceptable_recovery_lag: int = field(INT64, "1+", default=-1, ignorable=True)
    status: list[Status] | None = field(array(Status), "0+", nullable="0+")
    active_tasks: list[TaskIdsResponse] | None = field(
        array(TaskIdsResponse), "0+", nullable="0+", default=None
    )
    standby_tasks: list[TaskIdsResponse] | None = field(
        array(TaskIdsResponse), "0+", nullable="0+", default=None
    )
    warmup_tasks: list[TaskIdsResponse] | None = field(
        array(TaskIdsResponse), "0+", nullable="0+", default=None
    )
    topology_description_required: bool = field(BOOL, "1+", default=False)
    endpoint_information_epoch: int = field(INT32, "0+")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(
        array(EndpointToPartitions), "0+", nullable="0+", default=None
    )
