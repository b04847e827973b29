"""ProducerIdsRecord (version 0):
type 15 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, INT64, Record, field


class ProducerIdsRecord(Record, type=15, versions="0", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
    next_producer_id: int = field(INT64, "0+")
