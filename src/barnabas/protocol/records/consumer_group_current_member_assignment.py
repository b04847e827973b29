"""ConsumerGroupCurrentMemberAssignmentKey (version 0),
ConsumerGroupCurrentMemberAssignmentValue (version 0):
type 8 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT32, STRING, UUID, Record, Struct, array, field


class ConsumerGroupCurrentMemberAssignmentKey(Record, type=8, versions="0"):
    group_id: str = field(STRING, "0")
    member_id: str = field(STRING, "0")


class TopicPartitions(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[int] = field(array(INT32), "0+")
    assignment_epochs: list[int] | None = field(
        array(INT32), "0+", nullable="0+", default=[], tag=0
    )


class ConsumerGroupCurrentMemberAssignmentValue(Record, type=8, versions="0", flexible="0+"):
    member_epoch: int = field(INT32, "0+")
    previous_member_epoch: int = field(INT32, "0+")
    state: int = field(INT8, "0+")
    assigned_partitions: list[TopicPartitions] = field(array(TopicPartitions), "0+")
    partitions_pending_revocation: list[TopicPartitions] = field(array(TopicPartitions), "0+")
