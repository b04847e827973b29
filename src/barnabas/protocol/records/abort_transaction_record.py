"""AbortTransactionRecord (version 0):
type 25 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import STRING, Record, field


class AbortTransactionRecord(Record, type=25, versions="0", flexible="0+"):
    reason: str | None = field(STRING, "0+", nullable="0+", default=None, tag=0)
