"""RemoveTopicRecord (version 0):
type 9 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import UUID, Record, field


class RemoveTopicRecord(Record, type=9, versions="0", flexible="0+"):
    topic_id: bytes = field(UUID, "0+")
