"""DescribeProducers: API key 61, version 0, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class TopicRequest(Struct):
    name: str = field(STRING, "0+")
    partition_indexes: list[int] = field(array(INT32), "0+")


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field(array(TopicRequest), "0+")


class ProducerState(Struct):
    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT32, "0+")
    last_sequence: int = field(INT32, "0+", default=-1)
    last_timestamp: int = field(INT64, "0+", default=-1)
    coordinator_epoch: int = field(INT32, "0+")
    current_txn_start_offset: int = field(INT64, "0+", default=-1)


class PartitionResponse(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    active_producers: list[ProducerState] = field(array(ProducerState), "0+")


class TopicResponse(Struct):
    name: str = field(STRING, "0+")
    partitions: list[PartitionResponse] = field(array(PartitionResponse), "0+")


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    topics: list[TopicResponse] = field(array(TopicResponse), "0+")
