"""RemoteLogSegmentMetadataSnapshotRecord (version 0):
type 3 of the broker's storage.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    BYTES,
    INT8,
    INT32,
    INT64,
    UUID,
    Record,
    Struct,
    array,
    field,
)


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: int = field(INT32, "0+")
    offset: int = field(INT64, "0+")


class RemoteLogSegmentMetadataSnapshotRecord(Record, type=3, versions="0", flexible="0+"):
    segment_id: bytes = field(UUID, "0+")
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
