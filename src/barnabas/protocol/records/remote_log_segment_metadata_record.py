"""RemoteLogSegmentMetadataRecord (version 0):
type 0 of the broker's storage.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    Record,
    Struct,
    array,
    field,
)


class TopicIdPartitionEntry(Struct):
    name: str = field(STRING, "0+")
    id: bytes = field(UUID, "0+")
    partition: int = field(INT32, "0+")


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = field(TopicIdPartitionEntry, "0+")
    id: bytes = field(UUID, "0+")


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: int = field(INT32, "0+")
    offset: int = field(INT64, "0+")


class RemoteLogSegmentMetadataRecord(Record, type=0, versions="0", flexible="0+"):
    remote_log_segment_id: RemoteLogSegmentIdEntry = field(RemoteLogSegmentIdEntry, "0+")
    start_offset: int = field(INT64, "0+")
    end_offset: int = field(INT64, "0+")
    broker_id: int = field(INT32, "0+")
    max_timestamp_ms: int = field(INT64, "0+")
    event_timestamp_ms: int = field(INT64, "0+")
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(
        array(SegmentLeaderEpochEntry), "0+"
    )
    segment_size_in_bytes: int = field(INT32, "0+")
    custom_metadata: bytes | None = field(BYTES, "0+", nullable="0+", default=None)
    remote_log_segment_state: int = field(INT8, "0+")
    txn_index_empty: bool = field(BOOL, "0+", default=False, tag=0)
