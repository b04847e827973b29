"""AddPartitionsToTxn: API key 24, versions 0-5, flexible 3+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class AddPartitionsToTxnTopic(Struct):
    name: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = field(STRING, "4+")
    producer_id: int = field(INT64, "4+")
    producer_epoch: int = field(INT16, "4+")
    verify_only: bool = field(BOOL, "4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), "4+")


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = field(
        array(AddPartitionsToTxnTransaction), "4+", default=[]
    )
    v3_and_below_transactional_id: str = field(STRING, "0-3", default="")
    v3_and_below_producer_id: int = field(INT64, "0-3", default=0)
    v3_and_below_producer_epoch: int = field(INT16, "0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        array(AddPartitionsToTxnTopic), "0-3", default=[]
    )


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field(INT32, "0+")
    partition_error_code: int = field(INT16, "0+")


class AddPartitionsToTxnTopicResult(Struct):
    name: str = field(STRING, "0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        array(AddPartitionsToTxnPartitionResult), "0+"
    )


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = field(STRING, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), "4+"
    )


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        array(AddPartitionsToTxnResult), "4+", default=[]
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), "0-3", default=[]
    )
