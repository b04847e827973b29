"""EndTxnMarker (version 0):
kept in control batches and clients' payloads.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, Record, field


class EndTxnMarker(Record, versions="0"):
    coordinator_epoch: int = field(INT32, "0+")
