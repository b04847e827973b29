"""ShareFetch: API key 78, versions 1-2, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Message,
    Struct,
    array,
    field,
)

if TYPE_CHECKING:
    from barnabas.protocol.chunks import Records


class AcknowledgementBatch(Struct):
    first_offset: int = field(INT64, "0+")
    last_offset: int = field(INT64, "0+")
    acknowledge_types: list[int] = field(array(INT8), "0+")


class FetchPartition(Struct):
    partition_index: int = field(INT32, "0+")
    partition_max_bytes: int = field(INT32, "0", default=0)
    acknowledgement_batches: list[AcknowledgementBatch] = field(array(AcknowledgementBatch), "0+")


class FetchTopic(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[FetchPartition] = field(array(FetchPartition), "0+")


class ForgottenTopic(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class ShareFetchRequest(Message, api_key=78, versions="1-2", flexible="0+"):
    group_id: str | None = field(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = field(STRING, "0+", nullable="0+")
    share_session_epoch: int = field(INT32, "0+")
    max_wait_ms: int = field(INT32, "0+")
    min_bytes: int = field(INT32, "0+")
    max_bytes: int = field(INT32, "0+", default=2147483647)
    max_records: int = field(INT32, "1+")
    batch_size: int = field(INT32, "1+")
    share_acquire_mode: int = field(INT8, "2+", default=0, ignorable=True)
    is_renew_ack: bool = field(BOOL, "2+", default=False)
    topics: list[FetchTopic] = field(array(FetchTopic), "0+")
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), "0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")


class AcquiredRecords(Struct):
    first_offset: int = field(INT64, "0+")
    last_offset: int = field(INT64, "0+")
    delivery_count: int = field(INT16, "0+")


class PartitionData(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    acknowledge_error_code: int = field(INT16, "0+")
    acknowledge_error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "0+")
    records: Records | None = field(RECORDS, "0+", nullable="0")
    acquired_records: list[AcquiredRecords] = field(array(AcquiredRecords), "0+")


class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[PartitionData] = field(array(PartitionData), "0+")


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "0+")
    host: str = field(STRING, "0+")
    port: int = field(INT32, "0+")
    rack: str | None = field(STRING, "0+", nullable="0+", default=None)


class ShareFetchResponse(Message, api_key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(INT32, "1+")
    responses: list[ShareFetchableTopicResponse] = field(array(ShareFetchableTopicResponse), "0+")
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "0+")
