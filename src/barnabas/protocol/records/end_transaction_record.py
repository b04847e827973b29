"""EndTransactionRecord (version 0):
type 24 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import Record


class EndTransactionRecord(Record, type=24, versions="0", flexible="0+"):
    pass
