"""ConfigRecord (version 0):
type 4 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, STRING, Record, field


class ConfigRecord(Record, type=4, versions="0", flexible="0+"):
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    name: str = field(STRING, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")
