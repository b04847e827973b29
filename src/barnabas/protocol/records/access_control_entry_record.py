"""AccessControlEntryRecord (version 0):
type 18 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, STRING, UUID, Record, field


class AccessControlEntryRecord(Record, type=18, versions="0", flexible="0+"):
    id: bytes = field(UUID, "0+")
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    pattern_type: int = field(INT8, "0+")
    principal: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")
