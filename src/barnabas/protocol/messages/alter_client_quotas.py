"""AlterClientQuotas: API key 49, versions 0-1, flexible 1+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    FLOAT64,
    INT16,
    INT32,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class EntityDataRequest(Struct):
    entity_type: str = field(STRING, "0+")
    entity_name: str | None = field(STRING, "0+", nullable="0+")


class OpData(Struct):
    key: str = field(STRING, "0+")
    value: float = field(FLOAT64, "0+")
    remove: bool = field(BOOL, "0+")


class EntryDataRequest(Struct):
    entity: list[EntityDataRequest] = field(array(EntityDataRequest), "0+")
    ops: list[OpData] = field(array(OpData), "0+")


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[EntryDataRequest] = field(array(EntryDataRequest), "0+")
    validate_only: bool = field(BOOL, "0+")


class EntityDataResponse(Struct):
    entity_type: str = field(STRING, "0+")
    entity_name: str | None = field(STRING, "0+", nullable="0+")


class EntryDataResponse(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    entity: list[EntityDataResponse] = field(array(EntityDataResponse), "0+")


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    entries: list[EntryDataResponse] = field(array(EntryDataResponse), "0+")
