"""ShareGroupTargetAssignmentMemberKey (version 0),
ShareGroupTargetAssignmentMemberValue (version 0):
type 13 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, STRING, UUID, Record, Struct, array, field


class ShareGroupTargetAssignmentMemberKey(Record, type=13, versions="0"):
    group_id: str = field(STRING, "0")
    member_id: str = field(STRING, "0")


class TopicPartition(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class ShareGroupTargetAssignmentMemberValue(Record, type=13, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = field(array(TopicPartition), "0+")
