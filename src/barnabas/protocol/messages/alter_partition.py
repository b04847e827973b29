"""AlterPartition: API key 56, versions 0-3, flexible 0+;
served on controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    ZERO_UUID,
    Message,
    Struct,
    array,
    field,
)


class BrokerState(Struct):
    broker_id: int = field(INT32, "3+")
    broker_epoch: int = field(INT64, "3+", default=-1)


class PartitionDataRequest(Struct):
    partition_index: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    new_isr: list[int] = field(array(INT32), "0-2", default=[])
    new_isr_with_epochs: list[BrokerState] = field(array(BrokerState), "3+", default=[])
    leader_recovery_state: int = field(INT8, "1+", default=0)
    partition_epoch: int = field(INT32, "0+")


class TopicDataRequest(Struct):
    topic_name: str = field(STRING, "0-1", default="", ignorable=True)
    topic_id: bytes = field(UUID, "2+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionDataRequest] = field(array(PartitionDataRequest), "0+")


class AlterPartitionRequest(Message, api_key=56, versions="0-3", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
    topics: list[TopicDataRequest] = field(array(TopicDataRequest), "0+")


class PartitionDataResponse(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    isr: list[int] = field(array(INT32), "0+")
    leader_recovery_state: int = field(INT8, "1+", default=0, ignorable=True)
    partition_epoch: int = field(INT32, "0+")


class TopicDataResponse(Struct):
    topic_name: str = field(STRING, "0-1", default="", ignorable=True)
    topic_id: bytes = field(UUID, "2+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionDataResponse] = field(array(PartitionDataResponse), "0+")


class AlterPartitionResponse(Message, api_key=56, versions="0-3", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    topics: list[TopicDataResponse] = field(array(TopicDataResponse), "0+")
