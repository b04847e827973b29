"""RemoteLogSegmentMetadataUpdateRecord (version 0):
type 1 of the broker's storage.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT8, INT32, INT64, STRING, UUID, Record, Struct, field


class TopicIdPartitionEntry(Struct):
    name: str = field(STRING, "0+")
    id: bytes = field(UUID, "0+")
    partition: int = field(INT32, "0+")


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = field(TopicIdPartitionEntry, "0+")
    id: bytes = field(UUID, "0+")


class RemoteLogSegmentMetadataUpdateRecord(Record, type=1, versions="0", flexible="0+"):
    remote_log_segment_id: RemoteLogSegmentIdEntry = field(RemoteLogSegmentIdEntry, "0+")
    broker_id: int = field(INT32, "0+")
    event_timestamp_ms: int = field(INT64, "0+")
    custom_metadata: bytes | None = field(BYTES, "0+", nullable="0+", default=None)
    remote_log_segment_state: int = field(INT8, "0+")
