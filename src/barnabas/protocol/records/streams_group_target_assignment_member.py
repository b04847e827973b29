"""StreamsGroupTargetAssignmentMemberKey (version 0),
StreamsGroupTargetAssignmentMemberValue (version 0):
type 21 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, STRING, Record, Struct, array, field


class StreamsGroupTargetAssignmentMemberKey(Record, type=21, versions="0"):
    group_id: str = field(STRING, "0")
    member_id: str = field(STRING, "0")


class TaskIds(Struct):
    subtopology_id: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class StreamsGroupTargetAssignmentMemberValue(Record, type=21, versions="0", flexible="0+"):
    active_tasks: list[TaskIds] = field(array(TaskIds), "0+")
    standby_tasks: list[TaskIds] = field(array(TaskIds), "0+")
    warmup_tasks: list[TaskIds] = field(array(TaskIds), "0+")
