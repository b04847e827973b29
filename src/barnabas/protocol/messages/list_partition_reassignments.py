"""ListPartitionReassignments: API key 46, version 0, flexible 0+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class ListPartitionReassignmentsTopics(Struct):
    name: str = field(STRING, "0+")
    partition_indexes: list[int] = field(array(INT32), "0+")


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    timeout_ms: int = field(INT32, "0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        array(ListPartitionReassignmentsTopics), "0+", nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = field(INT32, "0+")
    replicas: list[int] = field(array(INT32), "0+")
    adding_replicas: list[int] = field(array(INT32), "0+")
    removing_replicas: list[int] = field(array(INT32), "0+")


class OngoingTopicReassignment(Struct):
    name: str = field(STRING, "0+")
    partitions: list[OngoingPartitionReassignment] = field(
        array(OngoingPartitionReassignment), "0+"
    )


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = field(array(OngoingTopicReassignment), "0+")
