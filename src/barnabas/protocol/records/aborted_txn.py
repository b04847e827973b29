"""AbortedTxn (version 0):
kept in control batches and clients' payloads.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT64, Record, field


class AbortedTxn(Record, versions="0"):
    producer_id: int = field(INT64, "0+")
    first_offset: int = field(INT64, "0+")
    last_offset: int = field(INT64, "0+")
    last_stable_offset: int = field(INT64, "0+")
