"""StreamsGroupDescribe: API key 89, versions 0-1, flexible 0+;
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


class StreamsGroupDescribeRequest(Message, api_key=89, versions="0-1", flexible="0+"):
    group_ids: list[str] = field(array(STRING), "0+")
    include_authorized_operations: bool = field(BOOL, "0+")
    include_topology_description: bool = field(BOOL, "1+", default=False)


class KeyValue(Struct):
    key: str = field(STRING, "0+")
    value: str = field(STRING, "0+")


class TopicInfo(Struct):
    name: str = field(STRING, "0+")
    partitions: int = field(INT32, "0+")
    replication_factor: int = field(INT16, "0+")
    topic_configs: list[KeyValue] = field(array(KeyValue), "0+")


class Subtopology(Struct):
    subtopology_id: str = field(STRING, "0+")
    source_topics: list[str] = field(array(STRING), "0+")
    repartition_sink_topics: list[str] = field(array(STRING), "0+")
    state_changelog_topics: list[TopicInfo] = field(array(TopicInfo), "0+")
    repartition_source_topics: list[TopicInfo] = field(array(TopicInfo), "0+")


class Topology(Struct):
    epoch: int = field(INT32, "0+")
    subtopologies: list[Subtopology] | None = field(
        array(Subtopology), "0+", nullable="0+", default=None
    )


class Endpoint(Struct):
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")


class TaskOffset(Struct):
    subtopology_id: str = field(STRING, "0+")
    partition: int = field(INT32, "0+")
    offset: int = field(INT64, "0+")


class TaskIds(Struct):
    subtopology_id: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class Assignment(Struct):
    active_tasks: list[TaskIds] = field(array(TaskIds), "0+")
    standby_tasks: list[TaskIds] = field(array(TaskIds), "0+")
    warmup_tasks: list[TaskIds] = field(array(TaskIds), "0+")


class Member(Struct):
    member_id: str = field(STRING, "0+")
    member_epoch: int = field(INT32, "0+")
    instance_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    client_id: str = field(STRING, "0+")
    client_host: str = field(STRING, "0+")
    topology_epoch: int = field(INT32, "0+")
    process_id: str = field(STRING, "0+")
    user_endpoint: Endpoint | None = field(Endpoint, "0+", nullable="0+", default=None)
    client_tags: list[KeyValue] = field(array(KeyValue), "0+")
    task_offsets: list[TaskOffset] = field(array(TaskOffset), "0+")
    task_end_offsets: list[TaskOffset] = field(array(TaskOffset), "0+")
    assignment: Assignment = field(Assignment, "0+")
    target_assignment: Assignment = field(Assignment, "0+")
    is_classic: bool = field(BOOL, "0+")


class TopologyDescriptionNode(Struct):
    name: str = field(STRING, "1+")
    node_type: int = field(INT8, "1+")
    source_topics: list[str] = field(array(STRING), "1+")
    sink_topic: str | None = field(STRING, "1+", nullable="1+", default=None)
    stores: list[str] = field(array(STRING), "1+")
    successors: list[str] = field(array(STRING), "1+")


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = field(STRING, "1+")
    nodes: list[TopologyDescriptionNode] = field(array(TopologyDescriptionNode), "1+")


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = field(TopologyDescriptionNode, "1+")
    processor: TopologyDescriptionNode = field(TopologyDescriptionNode, "1+")


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = field(
        array(TopologyDescriptionSubtopology), "1+"
    )
    global_stores: list[TopologyDescriptionGlobalStore] = field(
        array(TopologyDescriptionGlobalStore), "1+"
    )


class DescribedGroup(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    group_id: str = field(STRING, "0+")
    group_state: str = field(STRING, "0+")
    group_epoch: int = field(INT32, "0+")
    assignment_epoch: int = field(INT32, "0+")
    topology: Topology | None = field(Topology, "0+", nullable="0+", default=None)
    members: list[Member] = field(array(Member), "0+")
    authorized_operations: int = field(INT32, "0+", default=-2147483648)
    topology_description: TopologyDescription | None = field(
        TopologyDescription, "1+", nullable="1+", default=None
    )
    topology_description_status: int = field(INT8, "1+", default=0)
    assignor_name: str | None = field(STRING, "1+", nullable="1+", default=None, ignorable=True)


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    groups: list[DescribedGroup] = field(array(DescribedGroup), "0+")
