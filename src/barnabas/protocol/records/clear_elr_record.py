"""ClearElrRecord (version 0):
type 28 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import STRING, Record, field


class ClearElrRecord(Record, type=28, versions="0", flexible="0+"):
    topic_name: str = field(STRING, "0+")
