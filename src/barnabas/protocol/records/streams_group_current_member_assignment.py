"""StreamsGroupCurrentMemberAssignmentKey (version 0),
StreamsGroupCurrentMemberAssignmentValue (version 0):
type 22 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT32, STRING, Record, Struct, array, field


class StreamsGroupCurrentMemberAssignmentKey(Record, type=22, versions="0"):
    group_id: str = field(STRING, "0")
    member_id: str = field(STRING, "0")


class TaskIds(Struct):
    subtopology_id: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")
    assignment_epochs: list[int] | None = field(
        array(INT32), "0+", nullable="0+", default=[], tag=0
    )


class StreamsGroupCurrentMemberAssignmentValue(Record, type=22, versions="0", flexible="0+"):
    member_epoch: int = field(INT32, "0+")
    previous_member_epoch: int = field(INT32, "0+")
    state: int = field(INT8, "0+")
    active_tasks: list[TaskIds] = field(array(TaskIds), "0+")
    standby_tasks: list[TaskIds] = field(array(TaskIds), "0+")
    warmup_tasks: list[TaskIds] = field(array(TaskIds), "0+")
    active_tasks_pending_revocation: list[TaskIds] = field(array(TaskIds), "0+")
    standby_tasks_pending_revocation: list[TaskIds] = field(array(TaskIds), "0+")
    warmup_tasks_pending_revocation: list[TaskIds] = field(array(TaskIds), "0+")
