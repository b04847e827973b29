"""ReadShareGroupStateSummary: API key 87, versions 0-1, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Message,
    Struct,
    array,
    field,
)


class PartitionData(Struct):
    partition: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")


class ReadStateSummaryData(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[PartitionData] = field(array(PartitionData), "0+")


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions="0-1", flexible="0+"):
    group_id: str = field(STRING, "0+")
    topics: list[ReadStateSummaryData] = field(array(ReadStateSummaryData), "0+")


class PartitionResult(Struct):
    partition: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", default=None)
    state_epoch: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    start_offset: int = field(INT64, "0+")
    delivery_complete_count: int = field(INT32, "1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: bytes = field(UUID, "0+")
    partitions: list[PartitionResult] = field(array(PartitionResult), "0+")


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = field(array(ReadStateSummaryResult), "0+")
