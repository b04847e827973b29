"""DescribeClientQuotas: API key 48, versions 0-1, flexible 1+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class ComponentData(Struct):
    entity_type: str = field(STRING, "0+")
    match_type: int = field(INT8, "0+")
    match: str | None = field(STRING, "0+", nullable="0+")


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = field(array(ComponentData), "0+")
    strict: bool = field(BOOL, "0+")


class EntityData(Struct):
    entity_type: str = field(STRING, "0+")
    entity_name: str | None = field(STRING, "0+", nullable="0+")


class ValueData(Struct):
    key: str = field(STRING, "0+")
    value: float = field(FLOAT64, "0+")


class EntryData(Struct):
    entity: list[EntityData] = field(array(EntityData), "0+")
    values: list[ValueData] = field(array(ValueData), "0+")


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    entries: list[EntryData] | None = field(array(EntryData), "0+", nullable="0+")
