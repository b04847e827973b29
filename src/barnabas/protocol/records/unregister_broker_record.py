"""UnregisterBrokerRecord (version 0):
type 1 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, INT64, Record, field


class UnregisterBrokerRecord(Record, type=1, versions="0", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+")
