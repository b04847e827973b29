"""ControllerRegistration: API key 70, version 0, flexible 0+;
served on controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Message,
    Struct,
    array,
    field,
)


class Listener(Struct):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")
    security_protocol: int = field(INT16, "0+")


class Feature(Struct):
    name: str = field(STRING, "0+")
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class ControllerRegistrationRequest(Message, api_key=70, versions="0", flexible="0+"):
    controller_id: int = field(INT32, "0+")
    incarnation_id: bytes = field(UUID, "0+")
    zk_migration_ready: bool = field(BOOL, "0+")
    listeners: list[Listener] = field(array(Listener), "0+")
    features: list[Feature] = field(array(Feature), "0+")


class ControllerRegistrationResponse(Message, api_key=70, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
