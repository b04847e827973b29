"""WriteTxnMarkers: API key 27, versions 0-2, flexible 1+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class WritableTxnMarkerTopic(Struct):
    name: str = field(STRING, "0+")
    partition_indexes: list[int] = field(array(INT32), "0+")


class WritableTxnMarker(Struct):
    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT16, "0+")
    transaction_result: bool = field(BOOL, "0+")
    topics: list[WritableTxnMarkerTopic] = field(array(WritableTxnMarkerTopic), "0+")
    coordinator_epoch: int = field(INT32, "0+")
    transaction_version: int = field(INT8, "2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(Message, api_key=27, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker), "0+")


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


class WritableTxnMarkerTopicResult(Struct):
    name: str = field(STRING, "0+")
    partitions: list[WritableTxnMarkerPartitionResult] = field(
        array(WritableTxnMarkerPartitionResult), "0+"
    )


class WritableTxnMarkerResult(Struct):
    producer_id: int = field(INT64, "0+")
    topics: list[WritableTxnMarkerTopicResult] = field(array(WritableTxnMarkerTopicResult), "0+")


class WriteTxnMarkersResponse(Message, api_key=27, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = field(array(WritableTxnMarkerResult), "0+")
