"""TransactionLogKey (version 0),
TransactionLogValue (versions 0-1):
type 0 of the transaction coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, INT64, STRING, Record, Struct, array, field


class TransactionLogKey(Record, type=0, versions="0"):
    transactional_id: str = field(STRING, "0")


class PartitionsSchema(Struct):
    topic: str = field(STRING, "0+")
    partition_ids: list[int] = field(array(INT32), "0+")


class TransactionLogValue(Record, type=0, versions="0-1", flexible="1+"):
    producer_id: int = field(INT64, "0+")
    previous_producer_id: int = field(INT64, "1+", default=-1, tag=0)
    next_producer_id: int = field(INT64, "1+", default=-1, tag=1)
    producer_epoch: int = field(INT16, "0+")
    next_producer_epoch: int = field(INT16, "1+", default=-1, tag=3)
    transaction_timeout_ms: int = field(INT32, "0+")
    transaction_status: int = field(INT8, "0+")
    transaction_partitions: list[PartitionsSchema] | None = field(
        array(PartitionsSchema), "0+", nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = field(INT64, "0+")
    transaction_start_timestamp_ms: int = field(INT64, "0+")
    client_transaction_version: int = field(INT16, "1+", default=0, tag=2)
