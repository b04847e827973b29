"""ListTransactions: API key 66, versions 0-2, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = field(array(STRING), "0+")
    producer_id_filters: list[int] = field(array(INT64), "0+")
    duration_filter: int = field(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = field(STRING, "2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: str = field(STRING, "0+")
    producer_id: int = field(INT64, "0+")
    transaction_state: str = field(STRING, "0+")


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    unknown_state_filters: list[str] = field(array(STRING), "0+")
    transaction_states: list[TransactionState] = field(array(TransactionState), "0+")
