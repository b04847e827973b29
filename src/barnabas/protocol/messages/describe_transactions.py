"""DescribeTransactions: API key 65, version 0, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = field(array(STRING), "0+")


class TopicData(Struct):
    topic: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class TransactionState(Struct):
    error_code: int = field(INT16, "0+")
    transactional_id: str = field(STRING, "0+")
    transaction_state: str = field(STRING, "0+")
    transaction_timeout_ms: int = field(INT32, "0+")
    transaction_start_time_ms: int = field(INT64, "0+")
    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT16, "0+")
    topics: list[TopicData] = field(array(TopicData), "0+")


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    transaction_states: list[TransactionState] = field(array(TransactionState), "0+")
