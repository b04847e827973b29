"""Fetch: API key 1, versions 0-18, flexible 12+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    ZERO_UUID,
    Message,
    Struct,
    array,
    field,
)

if TYPE_CHECKING:
    from barnabas.protocol.chunks import Records


class ReplicaState(Struct):
    replica_id: int = field(INT32, "15+", default=-1)
    replica_epoch: int = field(INT64, "15+", default=-1)


class FetchPartition(Struct):
    partition: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = field(INT64, "0+")
    last_fetched_epoch: int = field(INT32, "12+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = field(INT32, "0+")
    replica_directory_id: bytes = field(UUID, "17+", default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: int = field(INT64, "18+", default=9223372036854775807, tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = field(array(FetchPartition), "0+")


class ForgottenTopic(Struct):
    topic: str = field(STRING, "7-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[int] = field(array(INT32), "7+")


class FetchRequest(Message, api_key=1, versions="0-18", flexible="12+"):
    cluster_id: str | None = field(
        STRING, "12+", nullable="12+", default=None, tag=0, ignorable=True
    )
    replica_id: int = field(INT32, "0-14", default=-1)
    replica_state: ReplicaState = field(ReplicaState, "15+", default=ReplicaState, tag=1)
    max_wait_ms: int = field(INT32, "0+")
    min_bytes: int = field(INT32, "0+")
    max_bytes: int = field(INT32, "3+", default=2147483647, ignorable=True)
    isolation_level: int = field(INT8, "4+", default=0, ignorable=True)
    session_id: int = field(INT32, "7+", default=0, ignorable=True)
    session_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(array(FetchTopic), "0+")
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), "7+", default=[])
    rack_id: str = field(STRING, "11+", default="", ignorable=True)


class EpochEndOffset(Struct):
    epoch: int = field(INT32, "12+", default=-1)
    end_offset: int = field(INT64, "12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "12+", default=-1)
    leader_epoch: int = field(INT32, "12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = field(INT64, "0+", default=-1)
    epoch: int = field(INT32, "0+", default=-1)


class AbortedTransaction(Struct):
    producer_id: int = field(INT64, "4+")
    first_offset: int = field(INT64, "4+")


class PartitionData(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    high_watermark: int = field(INT64, "0+")
    last_stable_offset: int = field(INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, "12+", default=EpochEndOffset, tag=0)
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch, "12+", default=LeaderIdAndEpoch, tag=1
    )
    snapshot_id: SnapshotId = field(SnapshotId, "12+", default=SnapshotId, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(
        array(AbortedTransaction), "4+", nullable="4+", default=[], ignorable=True
    )
    preferred_read_replica: int = field(INT32, "11+", default=-1)
    records: Records | None = field(RECORDS, "0+", nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData), "0+")


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "16+")
    host: str = field(STRING, "16+")
    port: int = field(INT32, "16+")
    rack: str | None = field(STRING, "16+", nullable="16+", default=None)


class FetchResponse(Message, api_key=1, versions="0-18", flexible="12+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "7+", default=0, ignorable=True)
    session_id: int = field(INT32, "7+", default=0)
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse), "0+")
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "16+", default=[], tag=0)
