"""FetchSnapshot: API key 59, versions 0-1, flexible 0+;
served on controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    ZERO_UUID,
    Message,
    Struct,
    array,
    field,
)

if TYPE_CHECKING:
    from barnabas.protocol.chunks import Records


class SnapshotIdRequest(Struct):
    end_offset: int = field(INT64, "0+")
    epoch: int = field(INT32, "0+")


class PartitionSnapshotRequest(Struct):
    partition: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "0+")
    snapshot_id: SnapshotIdRequest = field(SnapshotIdRequest, "0+")
    position: int = field(INT64, "0+")
    replica_directory_id: bytes = field(UUID, "1+", default=ZERO_UUID, tag=0, ignorable=True)


class TopicSnapshotRequest(Struct):
    name: str = field(STRING, "0+")
    partitions: list[PartitionSnapshotRequest] = field(array(PartitionSnapshotRequest), "0+")


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+", default=None, tag=0)
    replica_id: int = field(INT32, "0+", default=-1)
    max_bytes: int = field(INT32, "0+", default=2147483647)
    topics: list[TopicSnapshotRequest] = field(array(TopicSnapshotRequest), "0+")


class SnapshotIdResponse(Struct):
    end_offset: int = field(INT64, "0+")
    epoch: int = field(INT32, "0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")


class PartitionSnapshotResponse(Struct):
    index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    snapshot_id: SnapshotIdResponse = field(SnapshotIdResponse, "0+")
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch, "0+", default=LeaderIdAndEpoch, tag=0
    )
    size: int = field(INT64, "0+")
    position: int = field(INT64, "0+")
    unaligned_records: Records = field(RECORDS, "0+")


class TopicSnapshotResponse(Struct):
    name: str = field(STRING, "0+")
    partitions: list[PartitionSnapshotResponse] = field(array(PartitionSnapshotResponse), "0+")


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0, ignorable=True)
    error_code: int = field(INT16, "0+")
    topics: list[TopicSnapshotResponse] = field(array(TopicSnapshotResponse), "0+")
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", default=[], tag=0)
