"""Produce: API key 0, versions 0-13, flexible 9+;
served on broker listeners.

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
    UUID,
    ZERO_UUID,
    Message,
    Struct,
    array,
    field,
)

if TYPE_CHECKING:
    from barnabas.protocol.chunks import Records


class PartitionProduceData(Struct):
    index: int = field(INT32, "0+")
    records: Records | None = field(RECORDS, "0+", nullable="0+")


class TopicProduceData(Struct):
    name: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData), "0+")


class ProduceRequest(Message, api_key=0, versions="0-13", flexible="9+"):
    transactional_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    acks: int = field(INT16, "0+")
    timeout_ms: int = field(INT32, "0+")
    topic_data: list[TopicProduceData] = field(array(TopicProduceData), "0+")


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = field(INT32, "8+")
    batch_index_error_message: str | None = field(STRING, "8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "10+", default=-1)
    leader_epoch: int = field(INT32, "10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    base_offset: int = field(INT64, "0+")
    log_append_time_ms: int = field(INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array(BatchIndexAndErrorMessage), "8+", default=[], ignorable=True
    )
    error_message: str | None = field(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch, "10+", default=LeaderIdAndEpoch, tag=0
    )


class TopicProduceResponse(Struct):
    name: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(
        array(PartitionProduceResponse), "0+"
    )


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "10+")
    host: str = field(STRING, "10+")
    port: int = field(INT32, "10+")
    rack: str | None = field(STRING, "10+", nullable="10+", default=None)


class ProduceResponse(Message, api_key=0, versions="0-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse), "0+")
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "10+", default=[], tag=0)
