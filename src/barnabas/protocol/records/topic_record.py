"""TopicRecord (version 0):
type 2 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import STRING, UUID, Record, field


class TopicRecord(Record, type=2, versions="0", flexible="0+"):
    name: str = field(STRING, "0+")
    topic_id: bytes = field(UUID, "0+")
