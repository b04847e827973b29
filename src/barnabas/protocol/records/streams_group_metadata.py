"""StreamsGroupMetadataKey (version 0),
StreamsGroupMetadataValue (version 0):
type 17 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, INT64, STRING, Record, Struct, array, field


class StreamsGroupMetadataKey(Record, type=17, versions="0"):
    group_id: str = field(STRING, "0")


class LastAssignmentConfig(Struct):
    key: str = field(STRING, "0+")
    value: str = field(STRING, "0+")


class StreamsGroupMetadataValue(Record, type=17, versions="0", flexible="0+"):
    epoch: int = field(INT32, "0+")
    metadata_hash: int = field(INT64, "0+")
    validated_topology_epoch: int = field(INT32, "0+", default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(
        array(LastAssignmentConfig), "0+", nullable="0+", default=[], tag=1
    )
    stored_description_topology_epoch: int = field(INT32, "0+", default=-1, tag=2)
    failed_description_topology_epoch: int = field(INT32, "0+", default=-1, tag=3)
