"""RemoveAccessControlEntryRecord (version 0):
type 19 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import UUID, Record, field


class RemoveAccessControlEntryRecord(Record, type=19, versions="0", flexible="0+"):
    id: bytes = field(UUID, "0+")
