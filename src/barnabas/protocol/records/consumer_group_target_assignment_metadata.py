"""ConsumerGroupTargetAssignmentMetadataKey (version 0),
ConsumerGroupTargetAssignmentMetadataValue (version 0):
type 6 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, INT64, STRING, Record, field


class ConsumerGroupTargetAssignmentMetadataKey(Record, type=6, versions="0"):
    group_id: str = field(STRING, "0")


class ConsumerGroupTargetAssignmentMetadataValue(Record, type=6, versions="0", flexible="0+"):
    assignment_epoch: int = field(INT32, "0+")
    assignment_timestamp: int = field(INT64, "0+", default=0, tag=0, ignorable=True)
