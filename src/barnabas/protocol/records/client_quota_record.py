"""ClientQuotaRecord (version 0):
type 14 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, FLOAT64, STRING, Record, Struct, array, field


class EntityData(Struct):
    entity_type: str = field(STRING, "0+")
    entity_name: str | None = field(STRING, "0+", nullable="0+")


class ClientQuotaRecord(Record, type=14, versions="0", flexible="0+"):
    entity: list[EntityData] = field(array(EntityData), "0+")
    key: str = field(STRING, "0+")
    value: float = field(FLOAT64, "0+")
    remove: bool = field(BOOL, "0+")
