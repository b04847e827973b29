"""SnapshotFooterRecord (version 0):
kept in control batches and clients' payloads.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, Record, field


class SnapshotFooterRecord(Record, versions="0", flexible="0+"):
    version: int = field(INT16, "0+")
